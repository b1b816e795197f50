package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"dibs/api/claimed"
	"dibs/api/claiming"
	"dibs/api/operator"
	"dibs/api/wire"
)

// route is a line of the table of routes.
type route struct {
	method, path string
	scope        scope // any of these, or admin, may; none: everybody
	bodyMax      int   // bytes; 0 takes no body
	id, summary  string
	refusals     []wire.Code // beyond those that every route of its kind has
	run          handler
}

// handler is one of two: a plain endpoint with its line of the document, or an operation that huma runs and documents.
type handler struct {
	plain    endpoint
	document func(oapi *huma.OpenAPI, op *huma.Operation)
	register func(api huma.API, op huma.Operation)
}

// endpoint answers a request and returns the status that it answered with.
type endpoint func(w http.ResponseWriter, r *http.Request) int

// routes is the table of routes, and the only one.
func (s *Server) routes() []route {
	const reads, claims = scopeViewer, scopeStorefront
	return []route{
		{"POST", "/v1/campaigns", scopeAdmin, operator.AdminBodyMax, "create-campaign", "Create a campaign; the same again changes nothing",
			[]wire.Code{wire.CodeCampaignExists}, byHuma(s.operator.CreateCampaign)},
		{"GET", "/v1/campaigns", reads, 0, "list-campaigns", "List campaigns by id, page by page",
			nil, byHuma(s.operator.ListCampaigns)},
		{"GET", "/v1/campaigns/{id}", reads, 0, "get-campaign", "Show a campaign",
			[]wire.Code{wire.CodeCampaignNotFound}, byHuma(s.operator.GetCampaign)},
		{"PATCH", "/v1/campaigns/{id}", scopeAdmin, operator.AdminBodyMax, "change-campaign",
			"Change limits, window or status, in force for the next claim",
			[]wire.Code{wire.CodeCampaignNotFound, wire.CodeClosed}, byHuma(s.operator.ChangeCampaign)},
		{"POST", "/v1/campaigns/{id}/close", scopeAdmin, 0, "close-campaign", "Close a campaign for ever",
			[]wire.Code{wire.CodeCampaignNotFound}, byHuma(s.operator.CloseCampaign)},
		{"POST", "/v1/campaigns/{id}/packets", scopeAdmin, operator.PacketsBodyMax, "add-packets", "Add packets to a packet campaign, all or none",
			[]wire.Code{wire.CodeCampaignNotFound, wire.CodeClosed, wire.CodeIdempotencyMismatch}, handler{plain: s.operator.PostPackets, document: operator.DocumentPackets}},
		{"GET", "/v1/campaigns/{id}/stock", reads, 0, "get-stock", "Show the stock at one watermark, in units",
			[]wire.Code{wire.CodeCampaignNotFound}, byHuma(s.operator.GetStock)},
		{"POST", claiming.Path, claims, claiming.ClaimBodyMax, "claim", "Claim units of a campaign",
			claiming.Codes, handler{plain: s.claims.PostClaim, document: claiming.DocumentClaim}},
		{"POST", "/v1/claims:batch", claims, claiming.BatchBodyMax, "claim-batch", "Make up to 1,000 claims, each on its own",
			nil, handler{plain: s.claims.PostBatch, document: claiming.DocumentBatch}},
		{"GET", "/v1/claims/{id}", reads | claims, 0, "get-claim", "Show a claim, found the moment it is answered",
			[]wire.Code{wire.CodeClaimNotFound}, byHuma(s.claimed.GetClaim)},
		{"POST", "/v1/claims/{id}/redeem", claims, claimed.ResolveBodyMax, "redeem-claim", "Redeem a claim by an order; the same again changes nothing",
			[]wire.Code{wire.CodeClaimNotFound, wire.CodeAlreadyRedeemed, wire.CodeAlreadyReleased}, handler{plain: s.claimed.PostRedeem, document: claimed.DocumentRedeem}},
		{"POST", "/v1/claims/{id}/release", claims, claimed.ResolveBodyMax, "release-claim", "Release a claim; stock and limits come back, once",
			[]wire.Code{wire.CodeClaimNotFound, wire.CodeAlreadyRedeemed}, handler{plain: s.claimed.PostRelease, document: claimed.DocumentRelease}},
		{"GET", userClaimsPath, reads | claims, 0, "list-user-claims", "List a user's claims, newest first, page by page",
			nil, byHuma(s.claimed.GetUserClaims)},
		{"GET", "/healthz", scopeOpen, 0, "get-health", "Whether the process is up",
			nil, handler{plain: s.getHealth, document: documentHealth}},
		{"GET", "/readyz", scopeOpen, 0, "get-ready", "Whether claims can be taken",
			nil, handler{plain: s.getReady, document: documentHealth}},
		{"GET", "/metrics", reads, 0, "get-metrics", "Metrics for Prometheus",
			nil, handler{plain: s.getMetrics, document: documentMetrics}},
		{"GET", "/openapi.json", scopeOpen, 0, "get-openapi", "This document",
			nil, handler{plain: s.getOpenAPI, document: documentOpenAPI}},
	}
}

func byHuma[I, O any](run operation[I, O]) handler {
	return handler{register: func(api huma.API, op huma.Operation) { huma.Register(api, op, run) }}
}
