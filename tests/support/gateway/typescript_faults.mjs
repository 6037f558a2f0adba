// Requests through a proxy that fails at first: node typescript_faults.mjs CLIENT
import { createServer } from "node:http";
import { once } from "node:events";

const { Perdure, PerdureError } = await import(process.argv[2]);
const json = { "Content-Type": "application/json" };
const problem = JSON.stringify({ type: "", title: "", status: 503, code: "TOO_MANY_REQUESTS", detail: "busy; try again later" });
const page = (response) => response.writeHead(502, { "Content-Type": "text/html" }).end("<h1>Bad gateway</h1>");
const busy = (response) => response.writeHead(503, { "Content-Type": "application/problem+json", "Retry-After": "1" }).end(problem);
const cut = (response) => response.destroy();
const ok = (response) => response.writeHead(200, json).end(JSON.stringify({ id: "t", run_id: "r" }));
const answers = [];
const seen = [];
const server = createServer(async (request, response) => {
  let body = "";
  for await (const part of request) body += part;
  seen.push([request.method, body && JSON.parse(body).id]);
  answers.shift()(response);
}).listen(0, "127.0.0.1");
await once(server, "listening");

async function outcome(ask, ...planned) {
  answers.splice(0, answers.length, ...planned);
  seen.length = 0;
  let code = null;
  try {
    await ask();
  } catch (error) {
    if (!(error instanceof PerdureError)) throw error;
    code = [error.code, error.message];
  }
  return { code, asked: seen.length, ids: [...new Set(seen.map(([, id]) => id))].length };
}

const url = `http://127.0.0.1:${server.address().port}/prefix/`;
const patient = new Perdure(url, "token");
const hasty = new Perdure(url, "token", { patience: 0 });
const approve = () => patient.turn("t").approve({ call_id: "c", token: "t" });
console.log(
  JSON.stringify({
    started: await outcome(() => patient.start("desk", "Help."), page, cut, busy, ok),
    decided: await outcome(approve, cut, ok),
    proxy: await outcome(() => hasty.turn("t").status(), page, page),
    busy: await outcome(() => hasty.turn("t").status(), busy, busy),
  }),
);
server.close();
