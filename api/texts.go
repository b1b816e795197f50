package api

import "encoding/json"

// Tags of the document.
const (
	tagClaims    = "claims"
	tagCampaigns = "campaigns"
	tagWatching  = "watching"
	tagService   = "service"
)

// tags says what each tag is about, in the order of the document.
var tags = [][2]string{
	{tagClaims, "For storefronts, and for users by their own JWT: claim, look up, redeem, release, reopen, extend."},
	{tagCampaigns, "For operators: campaigns, packets, stock, ledger, and the audit log."},
	{tagWatching, "Campaigns live, as server-sent events."},
	{tagService, "For machines: probes, metrics, this document."},
}

// text is what the document says of an operation beyond its summary. The examples fit their schemas, which a linter checks.
type text struct {
	tag, description string
	body             string // example of a request's body; "" is none
	status, answer   string // example of the answer with this status
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

// frames says what a stream of events looks like.
const frames = "The stream begins with `retry: 2000`. Each event is a line `data:` with JSON as described, and an empty line. " +
	"It has no id, because each " +
	"event holds the whole state. `event: problem` with `data: {code, server, detail}` says which server does not answer. A comment line " +
	"comes every ten seconds. The stream ends when the token expires or is withdrawn."

// texts are by operation id. Each route has its own.
var texts = map[string]text{
	"create-campaign": {
		tag: tagCampaigns,
		description: "Creates a campaign in MySQL; its first claim loads it into Redis. The same content again changes nothing and is " +
			"answered 200, so that the request can be retried. A limit of 0 or absent is no limit.",
		body: `{"id":"spring","kind":"coupon","name":"Spring sale","total":1000,"per_user":2,"low_stock_at":50}`, status: "201",
		answer: aCampaign},
	"list-campaigns": {
		tag: tagCampaigns, description: "Campaigns in order of their ids.", status: "200",
		answer: `{"campaigns":[` + aCampaign + `],"next_cursor":"spring"}`,
	},
	"get-campaign": {
		tag: tagCampaigns, description: "The definition of a campaign, with its ETag.", status: "200", answer: aCampaign,
	},
	"change-campaign": {
		tag: tagCampaigns,
		description: "Changes the fields that are sent. Once answered, the change is in force for the next claim in every process. " +
			"A higher total restocks. With If-Match only the definition that was read is changed. Pausing alone works while MySQL is away: the answer " +
			"has what Redis knows of the campaign then, and If-Match is not looked at. Opening needs MySQL.",
		body: `{"total":1500,"status":"open"}`, status: "200", answer: aCampaign},
	"pause-campaigns": {
		tag: tagCampaigns,
		description: "For an emergency such as a wrong price. While MySQL is away the campaigns that Redis holds are paused, and `complete` is false: the " +
			"others take no claims before MySQL is back; send the request again then.",
		status: "200", answer: `{"paused":["spring","summer"],"complete":true}`,
	},
	"close-campaign": {
		tag:         tagCampaigns,
		description: "Ends a campaign for ever. The packets that are left return to the sender, once. A repetition changes nothing.",
		status:      "200", answer: aCampaign,
	},
	"add-packets": {
		tag: tagCampaigns,
		description: "Adds packets of money: a list, or an amount to split. A split needs an Idempotency-Key; a list is recognised by its " +
			"content.", body: `{"count":100,"amount":888800,"split":"double_mean","min":100}`, status: "201",
		answer: `{"count":100,"amount":888800}`},
	"get-stock": {
		tag:         tagCampaigns,
		description: "What Redis and MySQL say at a common watermark. Backlog is on its way to MySQL; drift is a fault.",
		status:      "200",
		answer:      `{"campaign_id":"spring","total":1000,"remaining":983,"claimed":17,"synced":15,"backlog":2,"drift":0,"parked":0,"lost_claims":0,"lost_units":0,"low":false,"as_of":"2027-03-01T10:00:00.123Z"}`,
	},
	"list-campaign-claims": {
		tag:         tagCampaigns,
		description: "Claims that MySQL has: one that was answered a moment ago may follow. A rare status in a large campaign takes long.",
		status:      "200", answer: `{"claims":[` + aClaim + `]}`,
	},
	"get-public-campaign": {
		tag: tagCampaigns,
		description: "For pages of a crowd, and for caches before them: no request asks a server. A campaign whose `public` is not `level` or " +
			"`count` is not found.",
		status: "200",
		answer: `{"id":"spring","name":"Spring sale","kind":"coupon","status":"open","left":"few","remaining":17}`,
	},
	"get-shards": {tag: tagCampaigns, description: "The shards of the campaign with their units, and how many moves are on their way. " +
		"A campaign of one shard has that one.",
		status: "200", answer: `{"campaign_id":"spring","total":1000,"moves_open":0,"shards":[{"shard":1,"partition":0,"granted":250,"claimed":17,"free":233,"seq":17,"synced_seq":15},` +
			`{"shard":2,"partition":2,"granted":250,"claimed":0,"free":250,"seq":0,"synced_seq":0}]}`},
	"get-info": {
		tag: tagService,
		description: "What a reader of the claim streams needs to know. A reader of fewer streams than `partitions` misses events. " +
			"Roles without an " +
			"API answer at DIBS_METRICS_ADDR.", status: "200",
		answer: `{"version":"v1.2.3","partitions":4,"durability":"fast","groups":["syncer","finance"]}`},
	"watch-campaign": {
		tag: tagWatching, description: "Server-sent events of one campaign, one per second. " + frames,
	},
	"watch": {
		tag: tagWatching, description: "Server-sent events of all active campaigns, one for each and second. " + frames,
	},
	"create-watch-ticket": {
		tag: tagWatching,
		description: "A ticket replaces the token of the caller: `new EventSource(url + '?ticket=' + ticket)`. It is valid for one " +
			"campaign and one connection, which counts among the watchers of the caller's token. " +
			"When that ends, make another: a browser's automatic reconnect is refused with 401.", status: "200",
		body: `{"campaign_id":"spring"}`, answer: `{"ticket":"WlbXrv9K","expires_at":"2027-03-01T10:01:00.000Z"}`},
	"claim": {
		tag: tagClaims,
		description: "Takes units for a user, all or none, and answers once the claim is as durable as configured. Send an Idempotency-Key; " +
			"if the answer is lost, send the same request again: it gets the first answer.",
		body: `{"user_id":"ada","quantity":1}`, status: "201", answer: aClaim},
	"claim-batch": {
		tag: tagClaims,
		description: "Some claims may be refused and others made. Each has its own idempotency_key; the header Idempotency-Key is refused " +
			"here.", body: `{"claims":[{"campaign_id":"spring","user_id":"ada","idempotency_key":"order-7"}]}`,
		status: "200",
		answer: `{"results":[{"status":201,"claim":` + aClaim + `}]}`},
	"get-claim": {
		tag: tagClaims, description: "A claim is found from the moment it is answered, even if MySQL does not have it yet.", status: "200",
		answer: aClaim,
	},
	"redeem-claim": {
		tag: tagClaims, description: "Binds a claim to an order, once. The same order again changes nothing; another order is refused.",
		body: `{"order_id":"order-7"}`, status: "200", answer: aRedeemed,
	},
	"release-claim": {
		tag: tagClaims, description: "Gives a claim's units back, once: to the stock, and to the limits that counted it.",
		body: `{"reason":"payment failed"}`, status: "200", answer: aReleased,
	},
	"reopen-claim": {
		tag: tagClaims, description: "For an order that was refunded: the claim is claimed again, and its hold begins anew. One reopen for an order: a late " +
			"repetition takes back no later redeem.",
		body: `{"order_id":"order-7","reason":"refunded"}`, status: "200", answer: aClaim,
	},
	"extend-claim": {
		tag: tagClaims, description: "While a bank asks its customer a question. With an Idempotency-Key a repeated request extends once.",
		body: `{"by":"10m"}`, status: "200", answer: aClaim,
	},
	"list-user-claims": {
		tag: tagClaims, description: "A user's claims, even if MySQL does not have them yet.", status: "200",
		answer: `{"claims":[` + aClaim + `]}`,
	},
	"list-audit": {
		tag: tagCampaigns,
		description: "Who created, changed or closed campaigns, added packets or repaired data, by which request, with the old and new " +
			"values; and refused tokens.", status: "200",
		answer: `{"entries":[{"id":"019b2f6e-6c4a-7c1e-9d0a-3f1f0c9a7b22","at":"2027-03-01T10:00:00.123Z","actor":"ann","request_id":"r-17",` +
			`"action":"campaign.changed","campaign_id":"spring","before":{"total":1000,"version":1},"after":{"total":1500,"version":2}}]}`},
	"get-ledger": {
		tag: tagCampaigns,
		description: "Accepted, redeemed, released and given-up claims, and the close, as in the claim stream, in order of `at` and `id`. " +
			"A page ends before the first event that may not be in MySQL yet: continue with `next`. With `Accept: text/csv` all events " +
			"are streamed, texts as they are; `form=spreadsheet` is CSV that a spreadsheet can open without harm.", status: "200",
		answer: `{"events":[{"v":1,"type":"claim.accepted","id":"019b2f6e-6c4a-7c1e-9d0a-3f1f0c9a7b21","campaign_id":"spring","user_id":"ada","quantity":1,"epoch":1,"seq":17,` +
			`"at":"2027-03-01T10:00:00.123Z"}],"next":"2027-03-01T10:00:00.123Z,019b2f6e-6c4a-7c1e-9d0a-3f1f0c9a7b21","upto":"2027-03-01T10:00:01.000Z"}`},
	"get-settlement": {tag: tagCampaigns, description: "The sums of a day of a time zone, from the first moment that shows its date. They are final " +
		"once MySQL has every event of the day; until then `missing` says why not.",
		status: "200", answer: `{"date":"2027-03-01","time_zone":"UTC","from":"2027-03-01T00:00:00.000Z","to":"2027-03-02T00:00:00.000Z","final":true,"missing":[],` +
			`"sums":[{"campaign_id":"rain","currency":"EUR","type":"claim.accepted","claims":100,"units":100,"amount":888800}]}`},
	"list-groups": {
		tag:         tagService,
		description: "The consumer groups that read the claim streams. An entry is kept until every group has acknowledged it.",
		status:      "200",
		answer:      `{"groups":[{"name":"finance","partitions":[{"partition":0,"lag":17,"pending":2}]},{"name":"syncer","partitions":[{"partition":0,"lag":0,"pending":2}]}]}`,
	},
	"add-group": {
		tag: tagService,
		description: "Registers a consumer group and creates it in every claim stream. From then on entries are kept for it. " +
			"A group that a reader creates in a stream is registered automatically.", status: "201", answer: `{"name":"audit"}`},
	"remove-group": {
		tag:         tagService,
		description: "Removes a consumer group from the registry and from every claim stream. Entries are no longer kept for it.",
	},
	"get-health": {
		tag: tagService, description: "Answers as long as the process is up.", status: "200", answer: `{"status":"ok"}`,
	},
	"get-ready": {
		tag: tagService, description: "Answers yes while at least one partition of Redis takes claims. A process that stops answers " +
			"no first.", status: "200",
		answer: `{"status":"ready"}`,
	},
	"get-metrics": {
		tag: tagService, description: "Every metric of the process, in Prometheus' text format.",
	},
	"get-asyncapi": {
		tag: tagService, description: "Every event of the claim streams, with a JSON Schema for each type.", status: "",
	},
	"get-openapi": {tag: tagService, description: "The document that you read."},
}

// schemaNames are the names of schemas in the document, where they are not those of Go.
var schemaNames = map[string]string{
	"CampaignJSON": "Campaign", "CampaignBody": "NewCampaign", "ChangeBody": "CampaignChange", "ListOutputBody": "CampaignPage",
	"PacketsBody": "NewPackets", "PacketBody": "NewPacket", "ClaimBody": "NewClaim", "BatchBody": "NewClaims", "BatchClaim": "NewClaimOfBatch",
	"BatchResults": "ClaimResults", "BatchResult": "ClaimResult", "RedeemBody": "Redemption", "ReleaseBody": "Release", "ReopenBody": "Reopening", "ExtendBody": "Extension",
	"UserClaimsOutputBody": "ClaimPage", "AuditList": "AuditPage", "GroupsOutputBody": "GroupList",
	"GroupOutputBody": "Group", "ProblemJSON": "Problem", "Event": "WatchEvent",
}

// bodies are the schemas of what is sent: an unknown field of them is refused. Answers may grow by fields.
var bodies = []string{
	"NewCampaign", "CampaignChange", "NewPackets", "NewPacket", "NewClaim", "NewClaims", "NewClaimOfBatch", "Redemption", "Release",
}

// parameterTexts are by name, for parameters that say nothing themselves.
var parameterTexts = map[string]string{"id": "of the campaign or the claim", "limit": "items of a page, at most"}

// example is a text as the document holds it.
func example(text string) any {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil { // they are written above
		panic(err)
	}
	return v
}
