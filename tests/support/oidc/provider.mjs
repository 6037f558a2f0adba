// A certified identity provider, `oidc-provider` for Node.js, with its own login form, for tests.
//
// The environment has the folder of the package, the address of the gateway, and a port. The first
// line that it prints is its issuer. A line on standard input ends it.

import { join } from "node:path";
import { pathToFileURL } from "node:url";

const { PACKAGE, GATEWAY, PORT } = process.env;
const { Provider } = await import(pathToFileURL(join(PACKAGE, "lib/index.js")));
const { generateKeyPair, exportJWK } = await import(
  pathToFileURL(join(PACKAGE, "../jose/dist/webapi/index.js"))
);

async function key(alg, kid) {
  const { privateKey } = await generateKeyPair(alg, { extractable: true });
  return { ...(await exportJWK(privateKey)), alg, kid, use: "sig" };
}

const issuer = `http://127.0.0.1:${PORT}`;
const people = {
  anna: { org: "org-1", groups: ["staff"] },
  rita: { org: "org-1", groups: ["readers"] },
  otto: { org: "org-2", groups: ["staff"] },
};
const page = {
  client_id: "page",
  redirect_uris: [`${GATEWAY}/ui/callback`],
  token_endpoint_auth_method: "none",
};
const provider = new Provider(issuer, {
  clients: [
    page,
    {
      ...page,
      client_id: "page-with-secret",
      client_secret: "a secret of the page",
      token_endpoint_auth_method: "client_secret_basic",
    },
    {
      client_id: "machine",
      client_secret: "a secret of the machine",
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
    },
  ],
  jwks: { keys: [await key("RS256", "rsa-1"), await key("ES256", "ec-1")] },
  cookies: { keys: ["a key of a test"] },
  pkce: { required: () => true },
  claims: { openid: ["sub"], profile: ["preferred_username", "org", "groups"], email: ["email"] },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({
      sub: id,
      preferred_username: id,
      email: `${id}@example.com`,
      ...(people[id] ?? {}),
    }),
  }),
  extraTokenClaims: (_, token) =>
    token.kind === "ClientCredentials" ? { org: "org-1", groups: ["staff"] } : people[token.accountId],
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: true },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: (_, client, wanted) => wanted ?? undefined,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => ({
        scope: "",
        audience: resource,
        accessTokenFormat: "jwt",
        accessTokenTTL: 600,
        jwt: { sign: { alg: process.env.ALGORITHM ?? "RS256" } },
      }),
    },
  },
  scopes: ["openid", "profile", "email", "offline_access"],
});
const server = provider.listen(Number(PORT), "127.0.0.1", () => console.log(issuer));
process.stdin.once("data", () => server.close());
process.stdin.once("end", () => process.exit());
