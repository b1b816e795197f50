// A receiver of Dibs' webhooks: it verifies the signature, handles each event once, and answers.
//
//   npm install typescript@5 @types/node@20 && npx tsc --strict --module nodenext --target es2022 receiver.ts
//   WEBHOOK_SECRET=whsec_... node receiver.js 127.0.0.1:9000
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";

const toleranceSeconds = 5 * 60; // an older message may be one that someone recorded
const bodyMax = 1 << 20;

interface Delivery {
  type: string;
  data: { campaign_id: string; seq?: number };
  gap?: { events: number };
}

const key = Buffer.from((process.env.WEBHOOK_SECRET ?? "").replace(/^whsec_/, ""), "base64");
const seen = new Set<string>(); // keep the ids in your database, in the transaction that handles the event

// verified reports whether one of the signatures is of this body, by the secret.
function verified(headers: IncomingHttpHeaders, body: Buffer): boolean {
  const id = String(headers["webhook-id"]);
  const sent = String(headers["webhook-timestamp"]);
  if (!/^\d+$/.test(sent) || Math.abs(Date.now() / 1000 - Number(sent)) > toleranceSeconds) return false;
  const want = createHmac("sha256", key).update(`${id}.${sent}.`).update(body).digest();
  return String(headers["webhook-signature"]).split(" ").some((signature) => {
    const got = Buffer.from(signature.replace(/^v1,/, ""), "base64");
    return signature.startsWith("v1,") && got.length === want.length && timingSafeEqual(got, want);
  });
}

const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  let length = 0;
  request.on("data", (chunk: Buffer) => {
    length += chunk.length;
    if (length > bodyMax) request.destroy();
    else chunks.push(chunk);
  });
  request.on("end", () => {
    const body = Buffer.concat(chunks);
    if (!verified(request.headers, body)) {
      response.writeHead(401).end();
      return;
    }
    const delivery = JSON.parse(body.toString("utf8")) as Delivery;
    const id = String(request.headers["webhook-id"]);
    if (!seen.has(id)) { // the same event may come again
      if (delivery.gap) console.log("missing before the next:", delivery.gap.events);
      console.log(delivery.type, delivery.data.campaign_id, delivery.data.seq ?? 0);
      seen.add(id);
    }
    response.writeHead(204).end(); // only now: any other answer has the event come again
  });
});

const [host, port] = (process.argv[2] ?? "").split(":");
server.listen(Number(port), host, () => {
  console.log(`listening on ${host}:${(server.address() as AddressInfo).port}`);
});
