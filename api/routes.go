package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"dibs/api/auth"
	"dibs/api/claimed"
	"dibs/api/claiming"
	"dibs/api/live"
	"dibs/api/operator"
	"dibs/api/wire"
	"dibs/docs/asyncapi"
)

// route is a line of the table of routes.
type route struct {
	method, path string
	scope        auth.Scope // any of these, or admin, may; none: everybody
	bodyMax      int        // bytes; 0 takes no body
	id, summary  string
	refusals     []wire.Code // beyond those that every route of its kind has
	run          handler
}

// pattern is the route as ServeMux has it.
func (rt *route) pattern() string { return rt.method + " " + rt.path }

// handler is one of two: a plain endpoint with its line of the document, or an operation that huma runs and documents.
type handler struct {
	plain    endpoint
	document func(oapi *huma.OpenAPI, op *huma.Operation)
	register func(api huma.API, op huma.Operation)
}

// endpoint answers a request and returns the status that it answered with.
type endpoint func(w http.ResponseWriter, r *http.Request) int

// routes is the table of all routes.
func (s *Server) routes() []route { //nolint:funlen // a table
	const admin, reads, claims, user = auth.Admin, auth.Viewer, auth.Storefront, auth.User
	const noCampaign, noClaim, closed = wire.CodeCampaignNotFound, wire.CodeClaimNotFound, wire.CodeClosed
	const changedSince = wire.CodePreconditionFailed
	return []route{
		{
			method: "POST", path: "/v1/campaigns", scope: admin, bodyMax: operator.BodyMax, id: "create-campaign",
			summary: "Create a campaign; the same again changes nothing", refusals: []wire.Code{wire.CodeCampaignExists},
			run: byHuma(s.operator.CreateCampaign),
		},
		{
			method: "GET", path: "/v1/campaigns", scope: reads, id: "list-campaigns",
			summary: "List campaigns by id, page by page", run: byHuma(s.operator.ListCampaigns),
		},
		{
			method: "GET", path: "/v1/campaigns/{id}", scope: reads | claims | user, id: "get-campaign",
			summary: "Show a campaign", refusals: []wire.Code{noCampaign, changedSince}, run: byHuma(s.operator.GetCampaign),
		},
		{
			method: "PATCH", path: "/v1/campaigns/{id}", scope: admin, bodyMax: operator.BodyMax, id: "change-campaign",
			summary:  "Change limits, window or status, in force for the next claim",
			refusals: []wire.Code{noCampaign, closed, changedSince}, run: byHuma(s.operator.ChangeCampaign),
		},
		{
			method: "POST", path: "/v1/campaigns:pause", scope: admin, id: "pause-campaigns",
			summary: "Pause every open campaign at once, also while MySQL is away", run: byHuma(s.operator.PauseCampaigns),
		},
		{
			method: "POST", path: "/v1/campaigns/{id}/close", scope: admin, id: "close-campaign",
			summary: "Close a campaign for ever", refusals: []wire.Code{noCampaign, changedSince},
			run: byHuma(s.operator.CloseCampaign),
		},
		{
			method: "POST", path: "/v1/campaigns/{id}/packets", scope: admin, bodyMax: operator.PacketsBodyMax, id: "add-packets",
			summary:  "Add packets to a packet campaign, all or none",
			refusals: []wire.Code{noCampaign, closed, wire.CodeIdempotencyMismatch},
			run:      plain(s.operator.PostPackets, operator.DocumentPackets),
		},
		{
			method: "GET", path: "/v1/campaigns/{id}/stock", scope: reads | claims | user, id: "get-stock",
			summary: "Show the stock at one watermark, in units", refusals: []wire.Code{noCampaign}, run: byHuma(s.operator.GetStock),
		},
		{
			method: "GET", path: "/v1/campaigns/{id}/shards", scope: reads, id: "get-shards",
			summary: "Show the shards of a campaign, in units", refusals: []wire.Code{noCampaign}, run: byHuma(s.operator.GetShards),
		},
		{
			method: "GET", path: "/v1/campaigns/{id}/public", scope: auth.Open, id: "get-public-campaign",
			summary: "Show what anybody may read of a campaign, without a token", refusals: []wire.Code{noCampaign},
			run: plain(s.live.GetPublic, live.DocumentPublic),
		},
		{
			method: "GET", path: "/v1/campaigns/{id}/watch", scope: reads | claims, id: "watch-campaign",
			summary:  "Watch a campaign live, one event per second",
			refusals: []wire.Code{noCampaign, wire.CodeInvalid, wire.CodeTooManyWatchers},
			run:      plain(s.whileAllowed(reads|claims, s.live.GetWatch), live.DocumentWatch),
		},
		{
			method: "GET", path: "/v1/watch", scope: reads, id: "watch",
			summary: "Watch all active campaigns live, one event for each per second", refusals: []wire.Code{wire.CodeTooManyWatchers},
			run: plain(s.whileAllowed(reads, s.live.GetWatchAll), live.DocumentWatchAll),
		},
		{
			method: "POST", path: "/v1/watch-tickets", scope: reads | claims, bodyMax: ticketBodyMax, id: "create-watch-ticket",
			summary: "Make a ticket for a browser's EventSource, which sends no header: one campaign, once",
			run:     plain(s.postTicket, documentTicket),
		},
		{
			method: "POST", path: claiming.Path, scope: claims | user, bodyMax: claiming.ClaimBodyMax, id: "claim",
			summary: "Claim units of a campaign", refusals: wire.ClaimCodes, run: plain(s.claiming.PostClaim, claiming.DocumentClaim),
		},
		{
			method: "GET", path: claiming.Path, scope: reads | claims, id: "list-campaign-claims",
			summary: "List a campaign's claims, newest first, page by page", refusals: []wire.Code{noCampaign},
			run: byHuma(s.claimed.GetCampaignClaims),
		},
		{
			method: "POST", path: "/v1/claims:batch", scope: claims | user, bodyMax: claiming.BatchBodyMax, id: "claim-batch",
			summary: "Make up to 1,000 claims, each independently",
			run:     plain(s.claiming.PostBatch, claiming.DocumentBatch),
		},
		{
			method: "GET", path: "/v1/claims/{id}", scope: reads | claims | user, id: "get-claim",
			summary: "Show a claim, found the moment it is answered", refusals: []wire.Code{noClaim}, run: byHuma(s.claimed.GetClaim),
		},
		{
			method: "POST", path: "/v1/claims/{id}/redeem", scope: claims, bodyMax: claimed.BodyMax, id: "redeem-claim",
			summary:  "Redeem a claim by an order; the same again changes nothing",
			refusals: []wire.Code{noClaim, wire.CodeAlreadyRedeemed, wire.CodeAlreadyReleased, wire.CodeClaimParked},
			run:      plain(s.claimed.PostRedeem, claimed.DocumentRedeem),
		},
		{
			method: "POST", path: "/v1/claims/{id}/release", scope: claims | user, bodyMax: claimed.BodyMax, id: "release-claim",
			summary:  "Release a claim; stock and limits come back, once",
			refusals: []wire.Code{noClaim, wire.CodeAlreadyRedeemed, wire.CodeClaimParked},
			run:      plain(s.claimed.PostRelease, claimed.DocumentRelease),
		},
		{
			method: "POST", path: "/v1/claims/{id}/reopen", scope: claims, bodyMax: claimed.BodyMax, id: "reopen-claim",
			summary:  "Take back that an order redeemed a claim; the same again changes nothing",
			refusals: []wire.Code{noClaim, wire.CodeNotRedeemed, wire.CodeAlreadyRedeemed, wire.CodeAlreadyReleased, wire.CodeClaimParked},
			run:      plain(s.claimed.PostReopen, claimed.DocumentReopen),
		},
		{
			method: "POST", path: "/v1/claims/{id}/extend", scope: claims, bodyMax: claimed.BodyMax, id: "extend-claim",
			summary:  "Have a claim's hold last longer, up to the campaign's hold_max",
			refusals: []wire.Code{noClaim, wire.CodeAlreadyRedeemed, wire.CodeAlreadyReleased, wire.CodeClaimParked},
			run:      plain(s.claimed.PostExtend, claimed.DocumentExtend),
		},
		{
			method: "GET", path: userClaimsPath, scope: reads | claims | user, id: "list-user-claims",
			summary: "List a user's claims, newest first, page by page", run: byHuma(s.claimed.GetUserClaims),
		},
		{
			method: "GET", path: "/v1/campaigns/{id}/ledger", scope: reads, id: "get-ledger",
			summary:  "List everything that happened to a campaign's claims, as JSON or CSV",
			refusals: []wire.Code{noCampaign, wire.CodeInvalid},
			run:      plain(s.operator.GetLedger, operator.DocumentLedger),
		},
		{
			method: "GET", path: "/v1/settlements/{date}", scope: reads, id: "get-settlement",
			summary: "Add up one day, by campaign, currency and type of event", refusals: []wire.Code{wire.CodeInvalid},
			run: plain(s.operator.GetSettlement, operator.DocumentSettlement),
		},
		{
			method: "GET", path: "/v1/audit", scope: reads, id: "list-audit",
			summary: "List who changed what, newest first, page by page", run: byHuma(s.operator.ListAudit),
		},
		{
			method: "GET", path: "/v1/groups", scope: reads, id: "list-groups",
			summary: "List the registered consumer groups and how far behind each is",
			run:     byHuma(s.operator.ListGroups),
		},
		{
			method: "PUT", path: "/v1/groups/{name}", scope: admin, id: "add-group",
			summary: "Register a consumer group; the same again changes nothing", run: byHuma(s.operator.AddGroup),
		},
		{
			method: "DELETE", path: "/v1/groups/{name}", scope: admin, id: "remove-group",
			summary:  "Remove a consumer group that has no reader any more",
			refusals: []wire.Code{wire.CodeGroupNotFound, wire.CodeGroupInUse}, run: byHuma(s.operator.RemoveGroup),
		},
		{
			method: "GET", path: "/v1/info", scope: infoScope, id: "get-info",
			summary: "Show the version, the claim streams and the durability of the service", run: byHuma(s.getInfo),
		},
		{
			method: "GET", path: "/healthz", scope: auth.Open, id: "get-health", summary: "Whether the process is up",
			refusals: nil, run: plain(s.getHealth, documentHealth),
		},
		{
			method: "GET", path: "/readyz", scope: auth.Open, id: "get-ready", summary: "Whether claims can be taken",
			refusals: nil, run: plain(s.getReady, documentHealth),
		},
		{
			method: "GET", path: "/metrics", scope: reads, id: "get-metrics", summary: "Metrics for Prometheus",
			refusals: nil, run: plain(s.getMetrics, documented("Prometheus text", "text/plain", huma.Schema{Type: "string"})),
		},
		{
			method: "GET", path: "/openapi.json", scope: auth.Open, id: "get-openapi", summary: "This document",
			refusals: nil, run: plain(serveJSON(&s.openAPI), documented("OpenAPI 3.1", wire.JSONContentType[0], anyObject)),
		},
		{
			method: "GET", path: "/asyncapi.json", scope: auth.Open, id: "get-asyncapi",
			summary: "The document of the claim streams, AsyncAPI 3.0", run: plain(serveJSON(&asyncapi.Document),
				documented("AsyncAPI 3.0", wire.JSONContentType[0], anyObject)),
		},
	}
}

func plain(run endpoint, document func(oapi *huma.OpenAPI, op *huma.Operation)) handler {
	return handler{plain: run, document: document}
}

func byHuma[I, O any](run operation[I, O]) handler {
	return handler{register: func(api huma.API, op huma.Operation) { huma.Register(api, op, run) }}
}
