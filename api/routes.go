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
func (s *Server) routes() []route {
	const admin, reads, claims, user = auth.Admin, auth.Viewer, auth.Storefront, auth.User
	const noCampaign, noClaim, closed = wire.CodeCampaignNotFound, wire.CodeClaimNotFound, wire.CodeClosed
	const changedSince = wire.CodePreconditionFailed
	return []route{
		{"POST", "/v1/campaigns", admin, operator.BodyMax, "create-campaign", "Create a campaign; the same again changes nothing",
			[]wire.Code{wire.CodeCampaignExists}, byHuma(s.operator.CreateCampaign)},
		{"GET", "/v1/campaigns", reads, 0, "list-campaigns", "List campaigns by id, page by page",
			nil, byHuma(s.operator.ListCampaigns)},
		{"GET", "/v1/campaigns/{id}", reads | claims, 0, "get-campaign", "Show a campaign",
			[]wire.Code{noCampaign, changedSince}, byHuma(s.operator.GetCampaign)},
		{"PATCH", "/v1/campaigns/{id}", admin, operator.BodyMax, "change-campaign",
			"Change limits, window or status, in force for the next claim",
			[]wire.Code{noCampaign, closed, changedSince}, byHuma(s.operator.ChangeCampaign)},
		{"POST", "/v1/campaigns/{id}/close", admin, 0, "close-campaign", "Close a campaign for ever",
			[]wire.Code{noCampaign, changedSince}, byHuma(s.operator.CloseCampaign)},
		{"POST", "/v1/campaigns/{id}/packets", admin, operator.PacketsBodyMax, "add-packets",
			"Add packets to a packet campaign, all or none",
			[]wire.Code{noCampaign, closed, wire.CodeIdempotencyMismatch}, plain(s.operator.PostPackets, operator.DocumentPackets)},
		{"GET", "/v1/campaigns/{id}/stock", reads | claims, 0, "get-stock", "Show the stock at one watermark, in units",
			[]wire.Code{noCampaign}, byHuma(s.operator.GetStock)},
		{"GET", "/v1/campaigns/{id}/shards", reads, 0, "get-shards", "Show the shards of a campaign, in units",
			[]wire.Code{noCampaign}, byHuma(s.operator.GetShards)},
		{"GET", "/v1/campaigns/{id}/watch", reads | claims, 0, "watch-campaign", "Watch a campaign live, an event a second",
			[]wire.Code{noCampaign, wire.CodeInvalid, wire.CodeTooManyWatchers},
			plain(s.whileAllowed(reads|claims, s.live.GetWatch), live.DocumentWatch)},
		{"GET", "/v1/watch", reads, 0, "watch", "Watch all active campaigns live, an event of each a second",
			[]wire.Code{wire.CodeTooManyWatchers}, plain(s.whileAllowed(reads, s.live.GetWatchAll), live.DocumentWatchAll)},
		{"POST", "/v1/watch-tickets", reads | claims, 0, "create-watch-ticket", "Make a ticket for a browser's EventSource, which sends no header",
			nil, plain(s.postTicket, documentTicket)},
		{"POST", claiming.Path, claims | user, claiming.ClaimBodyMax, "claim", "Claim units of a campaign",
			wire.ClaimCodes, plain(s.claiming.PostClaim, claiming.DocumentClaim)},
		{"POST", "/v1/claims:batch", claims | user, claiming.BatchBodyMax, "claim-batch", "Make up to 1,000 claims, each on its own",
			nil, plain(s.claiming.PostBatch, claiming.DocumentBatch)},
		{"GET", "/v1/claims/{id}", reads | claims | user, 0, "get-claim", "Show a claim, found the moment it is answered",
			[]wire.Code{noClaim}, byHuma(s.claimed.GetClaim)},
		{"POST", "/v1/claims/{id}/redeem", claims, claimed.BodyMax, "redeem-claim",
			"Redeem a claim by an order; the same again changes nothing",
			[]wire.Code{noClaim, wire.CodeAlreadyRedeemed, wire.CodeAlreadyReleased, wire.CodeClaimParked},
			plain(s.claimed.PostRedeem, claimed.DocumentRedeem)},
		{"POST", "/v1/claims/{id}/release", claims | user, claimed.BodyMax, "release-claim",
			"Release a claim; stock and limits come back, once",
			[]wire.Code{noClaim, wire.CodeAlreadyRedeemed, wire.CodeClaimParked}, plain(s.claimed.PostRelease, claimed.DocumentRelease)},
		{"GET", userClaimsPath, reads | claims | user, 0, "list-user-claims", "List a user's claims, newest first, page by page",
			nil, byHuma(s.claimed.GetUserClaims)},
		{"GET", "/v1/campaigns/{id}/ledger", reads, 0, "get-ledger", "List everything that happened to a campaign's claims, as JSON or CSV",
			[]wire.Code{noCampaign, wire.CodeArchived, wire.CodeInvalid}, plain(s.operator.GetLedger, operator.DocumentLedger)},
		{"GET", "/v1/settlements/{date}", reads, 0, "get-settlement", "Add up one day, by campaign, currency and type of event",
			[]wire.Code{wire.CodeInvalid}, plain(s.operator.GetSettlement, operator.DocumentSettlement)},
		{"GET", "/v1/audit", reads, 0, "list-audit", "List who changed what, newest first, page by page",
			nil, byHuma(s.operator.ListAudit)},
		{"GET", "/v1/groups", reads, 0, "list-groups", "List the registered consumer groups and how far behind each is",
			nil, byHuma(s.operator.ListGroups)},
		{"PUT", "/v1/groups/{name}", admin, 0, "add-group", "Register a consumer group; the same again changes nothing",
			nil, byHuma(s.operator.AddGroup)},
		{"DELETE", "/v1/groups/{name}", admin, 0, "remove-group", "Remove a consumer group that nothing reads for any more",
			[]wire.Code{wire.CodeGroupNotFound, wire.CodeGroupInUse}, byHuma(s.operator.RemoveGroup)},
		{"GET", "/v1/info", infoScope, 0, "get-info", "Show the version, the claim streams and the durability of the service",
			nil, byHuma(s.getInfo)},
		{"GET", "/healthz", auth.Open, 0, "get-health", "Whether the process is up",
			nil, plain(s.getHealth, documentHealth)},
		{"GET", "/readyz", auth.Open, 0, "get-ready", "Whether claims can be taken",
			nil, plain(s.getReady, documentHealth)},
		{"GET", "/metrics", reads, 0, "get-metrics", "Metrics for Prometheus",
			nil, plain(s.getMetrics, documentMetrics)},
		{"GET", "/openapi.json", auth.Open, 0, "get-openapi", "This document",
			nil, plain(s.getOpenAPI, documentOpenAPI)},
		{"GET", "/asyncapi.json", auth.Open, 0, "get-asyncapi", "The document of the claim streams, AsyncAPI 3.0",
			nil, plain(getAsyncAPI, documentAsyncAPI)},
	}
}

func plain(run endpoint, document func(oapi *huma.OpenAPI, op *huma.Operation)) handler {
	return handler{plain: run, document: document}
}

func byHuma[I, O any](run operation[I, O]) handler {
	return handler{register: func(api huma.API, op huma.Operation) { huma.Register(api, op, run) }}
}
