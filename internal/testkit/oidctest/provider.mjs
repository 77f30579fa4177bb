// An OpenID provider for tests. PORT, REDIRECT and MODULES are of the environment. Besides its own addresses it has
// POST /test/rotate, which replaces its key, and POST /test/sign, which signs the claims of the body with the key.
import { createServer } from "node:http";
import { generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { pathToFileURL } from "node:url";

const { PORT, REDIRECT, MODULES } = process.env;
const { default: Provider } = await import(pathToFileURL(`${MODULES}/oidc-provider/lib/index.js`));
const issuer = `http://127.0.0.1:${PORT}`;
const groups = { ada: ["builders", "others"], bob: ["leads"], eve: [] };

function make() {
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const kid = randomBytes(6).toString("hex");
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: "epigraph",
        client_secret: "secret-of-the-client-at-the-provider",
        redirect_uris: [REDIRECT],
        grant_types: ["authorization_code"],
        response_types: ["code"],
        id_token_signed_response_alg: "ES256",
      },
    ],
    jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), kid, use: "sig", alg: "ES256" }] },
    cookies: { keys: ["key of the cookies of a test"] },
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["groups"] },
    pkce: { required: () => true },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, email: `${id}@example.com`, email_verified: true, groups: groups[id] ?? [] }),
    }),
  });
  const token = (claims) => {
    const part = (v) => Buffer.from(JSON.stringify(v)).toString("base64url");
    const text = `${part({ alg: "ES256", kid, typ: "JWT" })}.${part({ iss: issuer, ...claims })}`;
    return `${text}.${sign("sha256", Buffer.from(text), { key: privateKey, dsaEncoding: "ieee-p1363" }).toString("base64url")}`;
  };
  return { answer: provider.callback(), token };
}

let current = make();
createServer(async (req, res) => {
  if (req.url === "/test/rotate") {
    current = make();
    return res.end();
  }
  if (req.url === "/test/sign") {
    let body = "";
    for await (const part of req) body += part;
    return res.end(current.token(JSON.parse(body)));
  }
  return current.answer(req, res);
}).listen(Number(PORT), "127.0.0.1");
