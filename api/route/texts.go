package route

import "encoding/json"

const (
	tagClaims    = "claims"
	tagCampaigns = "campaigns"
	tagWatching  = "watching"
	tagService   = "service"
)

// tags describes each tag, in the document's order.
var tags = [][2]string{
	{tagClaims, "For storefronts, and for users by their own JWT: claim, look up, redeem, release, reopen, extend."},
	{tagCampaigns, "For operators: campaigns, packets, stock, ledger, and the audit log."},
	{tagWatching, "Campaigns live, as server-sent events."},
	{tagService, "For machines: probes, metrics, this document."},
}

// text is an operation's text in the document, with examples of its body and
// answer; "" is none. A linter checks the examples against their schemas.
type text struct{ tag, summary, description, body, answer string }

func says(tag, summary, description, body, answer string) text {
	return text{tag: tag, summary: summary, description: description, body: body, answer: answer}
}

const (
	aCampaign = `{"id":"spring","kind":"coupon","name":"Spring sale","status":"open","total":1000,"per_user":2,"time_zone":"UTC",` +
		`"low_stock_at":50,"version":1,"created_at":"2027-03-01T09:00:00.000Z","updated_at":"2027-03-01T09:00:00.000Z"}`
	aClaim = `{"id":"019b2f6e-6c4a-7c1e-9d0a-3f1f0c9a7b21","campaign_id":"spring","user_id":"ada","quantity":1,"seq":17,"status":"claimed",` +
		`"claimed_at":"2027-03-01T10:00:00.123Z"}`
	aRedeemed = `{"id":"019b2f6e-6c4a-7c1e-9d0a-3f1f0c9a7b21","campaign_id":"spring","user_id":"ada","quantity":1,"seq":17,"status":"redeemed",` +
		`"claimed_at":"2027-03-01T10:00:00.123Z","order_id":"order-7","redeemed_at":"2027-03-01T10:05:00.000Z"}`
	aReleased = `{"id":"019b2f6e-6c4a-7c1e-9d0a-3f1f0c9a7b21","campaign_id":"spring","user_id":"ada","quantity":1,"seq":17,"status":"released",` +
		`"claimed_at":"2027-03-01T10:00:00.123Z","released_at":"2027-03-01T10:05:00.000Z","release_reason":"payment failed"}`
)

const frames = "The stream begins with `retry: 2000`. Each event is a line `data:` with JSON as described, and an empty line. " +
	"It has no id, because each event holds the whole state. `event: problem` with `data: {code, server, detail}` says which server " +
	"does not answer. A comment line comes every ten seconds. The stream ends when the token expires or is withdrawn."

// texts are by operation id. Each route has one.
var texts = map[string]text{
	"create-campaign": says(tagCampaigns, "Create a campaign; the same again changes nothing",
		"Creates a campaign in MySQL; its first claim loads it into Redis. The same content again changes nothing and is answered 200, so that the request can be retried. A limit of 0 or absent is no limit.",
		`{"id":"spring","kind":"coupon","name":"Spring sale","total":1000,"per_user":2,"low_stock_at":50}`, aCampaign),
	"list-campaigns": says(tagCampaigns, "List campaigns by id, page by page",
		"Campaigns in order of their ids.",
		"", `{"campaigns":[`+aCampaign+`],"next_cursor":"spring"}`),
	"get-campaign": says(tagCampaigns, "Show a campaign",
		"The definition of a campaign, with its ETag.",
		"", aCampaign),
	"change-campaign": says(tagCampaigns, "Change limits, window or status, in force for the next claim",
		"Changes the fields that are sent. Once answered, the change is in force for the next claim in every process. A higher total restocks. With If-Match only the definition that was read is changed. Pausing alone works while MySQL is away: the answer has what Redis knows of the campaign then, and If-Match is ignored. Opening needs MySQL.",
		`{"total":1500,"status":"open"}`, aCampaign),
	"delete-campaign": says(tagCampaigns, "Delete a campaign that never had claims",
		"Deletes the campaign and its packets. While it is checked, a second or two, the campaign takes no claims.",
		"", ""),
	"pause-campaigns": says(tagCampaigns, "Pause every open campaign at once, also while MySQL is away",
		"For an emergency such as a wrong price. While MySQL is away the campaigns that Redis holds are paused, and `complete` is false: the others take no claims before MySQL is back; send the request again then.",
		"", `{"paused":["spring","summer"],"complete":true}`),
	"close-campaign": says(tagCampaigns, "Close a campaign for ever",
		"Ends a campaign for ever. The packets that are left return to the sender, once. A repetition changes nothing.",
		"", aCampaign),
	"add-packets": says(tagCampaigns, "Add packets to a packet campaign, all or none",
		"Adds packets of money: a list, or an amount to split. A split needs an Idempotency-Key; a list is recognised by its content.",
		`{"count":100,"amount":888800,"split":"double_mean","min":100}`, `{"count":100,"amount":888800}`),
	"get-stock": says(tagCampaigns, "Show the stock at one watermark, in units",
		"What Redis and MySQL say at a common watermark. Backlog is on its way to MySQL; drift is a fault.",
		"", `{"campaign_id":"spring","total":1000,"remaining":983,"claimed":17,"synced":15,"backlog":2,"drift":0,"parked":0,"lost_claims":0,"lost_units":0,"low":false,"as_of":"2027-03-01T10:00:00.123Z"}`),
	"get-shards": says(tagCampaigns, "Show the shards of a campaign, in units",
		"The shards of the campaign with their units, and how many moves are on their way. A campaign of one shard has that one.",
		"", `{"campaign_id":"spring","total":1000,"moves_open":0,"shards":[{"shard":1,"partition":0,"granted":250,"claimed":17,"free":233,"seq":17,"synced_seq":15},{"shard":2,"partition":2,"granted":250,"claimed":0,"free":250,"seq":0,"synced_seq":0}]}`),
	"get-public-campaign": says(tagCampaigns, "Show what anybody may read of a campaign, without a token",
		"For pages of a crowd, and for caches before them: no request asks a server. A campaign whose `public` is not `level` or `count` is not found.",
		"", `{"id":"spring","name":"Spring sale","kind":"coupon","status":"open","left":"few","remaining":17}`),
	"watch-campaign": says(tagWatching, "Watch a campaign live, one event per second",
		"Server-sent events of one campaign, one per second. "+frames,
		"", ""),
	"watch": says(tagWatching, "Watch all active campaigns live, one event for each per second",
		"Server-sent events of all active campaigns, one for each and second. "+frames,
		"", ""),
	"create-watch-ticket": says(tagWatching, "Make a ticket for a browser's EventSource, which sends no header: one campaign, once",
		"A ticket replaces the token of the caller: `new EventSource(url + '?ticket=' + ticket)`. It is valid for one campaign and one connection, which counts among the watchers of the caller's token. When that ends, make another: a browser's automatic reconnect is refused with 401.",
		`{"campaign_id":"spring"}`, `{"ticket":"WlbXrv9K","expires_at":"2027-03-01T10:01:00.000Z"}`),
	"claim": says(tagClaims, "Claim units of a campaign",
		"Takes units for a user, all or none, and answers once the claim is as durable as configured. Send an Idempotency-Key; if the answer is lost, send the same request again: it gets the first answer.",
		`{"user_id":"ada","quantity":1}`, aClaim),
	"list-campaign-claims": says(tagCampaigns, "List a campaign's claims, newest first, page by page",
		"Claims that MySQL has: one that was answered a moment ago may follow. A rare status in a large campaign takes long.",
		"", `{"claims":[`+aClaim+`]}`),
	"claim-batch": says(tagClaims, "Make up to 1,000 claims, each independently",
		"Some claims may be refused and others made. Each has its own idempotency_key; the header Idempotency-Key is refused here.",
		`{"claims":[{"campaign_id":"spring","user_id":"ada","idempotency_key":"order-7"}]}`, `{"results":[{"status":201,"claim":`+aClaim+`}]}`),
	"get-claim": says(tagClaims, "Show a claim, found the moment it is answered",
		"A claim is found from the moment it is answered, even if MySQL does not have it yet.",
		"", aClaim),
	"redeem-claim": says(tagClaims, "Redeem a claim by an order; the same again changes nothing",
		"Binds a claim to an order, once. The same order again changes nothing; another order is refused.",
		`{"order_id":"order-7"}`, aRedeemed),
	"release-claim": says(tagClaims, "Release a claim; stock and limits come back, once",
		"Gives a claim's units back, once: to the stock, and to the limits that counted it.",
		`{"reason":"payment failed"}`, aReleased),
	"reopen-claim": says(tagClaims, "Take back that an order redeemed a claim; the same again changes nothing",
		"For an order that was refunded: the claim is claimed again, and its hold starts again. One reopen for an order: a late repetition takes back no later redeem.",
		`{"order_id":"order-7","reason":"refunded"}`, aClaim),
	"extend-claim": says(tagClaims, "Have a claim's hold last longer, up to the campaign's hold_max",
		"While a bank asks its customer a question. With an Idempotency-Key a repeated request extends once.",
		`{"by":"10m"}`, aClaim),
	"list-user-claims": says(tagClaims, "List a user's claims, newest first, page by page",
		"A user's claims, even if MySQL does not have them yet.",
		"", `{"claims":[`+aClaim+`]}`),
	"get-ledger": says(tagCampaigns, "List everything that happened to a campaign's claims, as JSON or CSV",
		"Accepted, redeemed, released and given-up claims, and the close, as in the claim stream, in order of `at` and `id`. A page ends before the first event that may not be in MySQL yet: continue with `next`. With `Accept: text/csv` all events are streamed, texts as they are; `form=spreadsheet` is CSV that a spreadsheet can open without harm.",
		"", `{"events":[{"v":1,"type":"claim.accepted","id":"019b2f6e-6c4a-7c1e-9d0a-3f1f0c9a7b21","campaign_id":"spring","user_id":"ada","quantity":1,"epoch":1,"seq":17,"at":"2027-03-01T10:00:00.123Z"}],"next":"2027-03-01T10:00:00.123Z,019b2f6e-6c4a-7c1e-9d0a-3f1f0c9a7b21","upto":"2027-03-01T10:00:01.000Z"}`),
	"get-settlement": says(tagCampaigns, "Add up one day, by campaign, currency and type of event",
		"The sums of a day of a time zone, from the first moment that shows its date. They are final once MySQL has every event of the day; until then `missing` says why not.",
		"", `{"date":"2027-03-01","time_zone":"UTC","from":"2027-03-01T00:00:00.000Z","to":"2027-03-02T00:00:00.000Z","final":true,"missing":[],"sums":[{"campaign_id":"rain","currency":"EUR","type":"claim.accepted","claims":100,"units":100,"amount":888800}]}`),
	"list-audit": says(tagCampaigns, "List who changed what, newest first, page by page",
		"Who created, changed or closed campaigns, added packets or repaired data, by which request, with the old and new values; and refused tokens.",
		"", `{"entries":[{"id":"019b2f6e-6c4a-7c1e-9d0a-3f1f0c9a7b22","at":"2027-03-01T10:00:00.123Z","actor":"ann","request_id":"r-17","action":"campaign.changed","campaign_id":"spring","before":{"total":1000,"version":1},"after":{"total":1500,"version":2}}]}`),
	"list-groups": says(tagService, "List the registered consumer groups and how far behind each is",
		"The consumer groups that read the claim streams. An entry is kept until every group has acknowledged it.",
		"", `{"groups":[{"name":"finance","partitions":[{"partition":0,"lag":17,"pending":2}]},{"name":"syncer","partitions":[{"partition":0,"lag":0,"pending":2}]}]}`),
	"add-group": says(tagService, "Register a consumer group; the same again changes nothing",
		"Registers a consumer group and creates it in every claim stream. From then on entries are kept for it. A group that a reader creates in a stream is registered automatically.",
		"", `{"name":"audit"}`),
	"remove-group": says(tagService, "Remove a consumer group that has no reader any more",
		"Removes a consumer group from the registry and from every claim stream. Entries are no longer kept for it.",
		"", ""),
	"get-info": says(tagService, "Show the version, the claim streams and the durability of the service",
		"What a reader of the claim streams needs to know. A reader of fewer streams than `partitions` misses events. Roles without an API answer at DIBS_METRICS_ADDR.",
		"", `{"version":"v1.2.3","partitions":4,"durability":"fast","groups":["syncer","finance"]}`),
	"get-health": says(tagService, "Whether the process is up",
		"Answers as long as the process is up.",
		"", `{"status":"ok"}`),
	"get-ready": says(tagService, "Whether claims can be taken",
		"Answers yes while at least one partition of Redis takes claims. A process that stops answers no first.",
		"", `{"status":"ready"}`),
	"get-metrics": says(tagService, "Metrics for Prometheus",
		"Every metric of the process, in Prometheus' text format.",
		"", ""),
	"get-openapi": says(tagService, "This document",
		"The document that you read.",
		"", ""),
	"get-asyncapi": says(tagService, "The document of the claim streams, AsyncAPI 3.0",
		"Every event of the claim streams, with a JSON Schema for each type.",
		"", ""),
}

// schemaNames are the names of schemas that differ from Go's.
var schemaNames = map[string]string{
	"CampaignJSON": "Campaign", "CampaignBody": "NewCampaign", "ChangeBody": "CampaignChange", "ListOutputBody": "CampaignPage",
	"PacketsBody": "NewPackets", "PacketBody": "NewPacket", "ClaimBody": "NewClaim", "BatchBody": "NewClaims", "BatchClaim": "NewClaimOfBatch",
	"BatchResults": "ClaimResults", "BatchResult": "ClaimResult", "RedeemBody": "Redemption", "ReleaseBody": "Release", "ReopenBody": "Reopening", "ExtendBody": "Extension",
	"UserClaimsOutputBody": "ClaimPage", "AuditList": "AuditPage", "GroupsOutputBody": "GroupList",
	"GroupOutputBody": "Group", "HealthJSON": "Health", "ProblemJSON": "Problem", "Event": "WatchEvent",
}

// bodies are the schemas of request bodies, which refuse unknown fields.
var bodies = []string{
	"NewCampaign", "CampaignChange", "LimitBody", "NewPackets", "NewPacket", "NewClaim", "NewClaims", "NewClaimOfBatch",
	"Redemption", "Release", "Reopening", "Extension", "TicketBody",
}

var parameterTexts = map[string]string{"id": "of the campaign or the claim", "limit": "items of a page, at most"}

func example(text string) any {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil { // they are written above
		panic(err)
	}
	return v
}
