// A shop in TypeScript, on a client that openapi-typescript makes of the service's own document:
//
//   npm init -y && npm pkg set type=module && npm install openapi-fetch openapi-typescript typescript@5
//   npx openapi-typescript http://127.0.0.1:8080/openapi.json -o dibs.d.ts
//   npx tsc --strict --target es2022 --module es2022 --moduleResolution bundler --lib es2022,dom shop.ts
//   node shop.js http://127.0.0.1:8080
import createClient from "openapi-fetch";
import type { components, paths } from "./dibs";

declare const process: { argv: string[]; exitCode?: number };

type Claim = components["schemas"]["Claim"];

const dibs = createClient<paths>({ baseUrl: process.argv[2] });

// claim takes a unit. Sold out is an answer, not an error; what may pass is asked again, with the same key.
async function claim(campaign: string, user: string, key: string): Promise<Claim | string> {
  for (;;) {
    const { data, error } = await dibs.POST("/v1/campaigns/{id}/claims", {
      params: { path: { id: campaign }, header: { "Idempotency-Key": key } },
      body: { user_id: user },
    });
    if (data) return data;
    if (error.status !== 503) return error.code;
    await new Promise((resolve) => setTimeout(resolve, error.retry_after_ms ?? 1000));
  }
}

async function main(): Promise<void> {
  const opened = await dibs.POST("/v1/campaigns", { body: { id: "shop-ts", kind: "coupon", total: 2, per_user: 1 } });
  if (opened.error) throw new Error(opened.error.detail);

  const first = await claim("shop-ts", "ada", "order-1");
  if (typeof first === "string") throw new Error(first);
  const again = await claim("shop-ts", "ada", "order-1");
  console.log("same claim:", typeof again !== "string" && again.id === first.id);
  console.log("over the limit:", await claim("shop-ts", "ada", "order-2"));

  const { data: batch } = await dibs.POST("/v1/claims:batch", {
    body: { claims: [{ campaign_id: "shop-ts", user_id: "bob" }, { campaign_id: "shop-ts", user_id: "eve", quantity: 1 }] },
  });
  console.log("batch:", batch?.results?.map((r) => r.claim?.status ?? r.problem?.code).join(" "));

  const redeemed = await dibs.POST("/v1/claims/{id}/redeem", { params: { path: { id: first.id } }, body: { order_id: "4711" } });
  console.log("redeemed:", redeemed.data?.status);
  const { data: stock } = await dibs.GET("/v1/campaigns/{id}/stock", { params: { path: { id: "shop-ts" } } });
  console.log("left:", stock?.remaining);
  const missing = await dibs.GET("/v1/campaigns/{id}", { params: { path: { id: "none-such" } } });
  console.log("missing:", missing.error?.code);
}

main().catch((problem: unknown) => {
  console.error(problem);
  process.exitCode = 1;
});
