// Reads a stream that breaks in the middle of a character, and has odd texts: node typescript_streams.mjs CLIENT
import { createServer } from "node:http";
import { once } from "node:events";

const { Perdure } = await import(process.argv[2]);
const odd = "a\u2028id: 9\u2029b \r c é 😀 data: x";
const message = (id, text) => Buffer.from(`id: ${id}\ndata: ${JSON.stringify({ text })}\n\n`);
const connections = [
  (response) => {
    const bytes = Buffer.concat([Buffer.from("retry: 10\n\n: ping\n\n"), message("1", odd), message("2", odd)]);
    for (const byte of bytes.subarray(0, -12)) response.write(Buffer.from([byte]));
    setTimeout(() => response.destroy(), 50);
  },
  (response) => response.end(Buffer.from(message("2", odd).toString().replaceAll("\n", "\r\n"))),
  (response) => response.writeHead(204).end(),
];
const asked = [];
const server = createServer((request, response) => {
  asked.push(request.headers["last-event-id"] ?? null);
  connections.shift()(response);
}).listen(0, "127.0.0.1");
await once(server, "listening");

const perdure = new Perdure(`http://127.0.0.1:${server.address().port}`, "token");
let attached = 0;
const texts = [];
const input = { path: { id: "b" }, onReattached: () => (attached += 1) };
for await (const { text } of perdure.stream("/v1/batches/{id}/results", input)) texts.push(text === odd);
console.log(JSON.stringify({ asked, attached, texts }));
server.close();
