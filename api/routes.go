package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// route is a line of the table of routes.
type route struct {
	method, path string
	scope        scope // any of these, or admin, may; none: everybody
	bodyMax      int   // bytes; 0 takes no body
	id, summary  string
	refusals     []Code // beyond those that every route of its kind has
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
		{"POST", "/v1/campaigns", scopeAdmin, AdminBodyMax, "create-campaign", "Create a campaign; the same again changes nothing",
			[]Code{CodeCampaignExists}, byHuma(s.operator.createCampaign)},
		{"GET", "/v1/campaigns", reads, 0, "list-campaigns", "List campaigns by id, page by page",
			nil, byHuma(s.operator.listCampaigns)},
		{"GET", "/v1/campaigns/{id}", reads, 0, "get-campaign", "Show a campaign",
			[]Code{CodeCampaignNotFound}, byHuma(s.operator.getCampaign)},
		{"PATCH", "/v1/campaigns/{id}", scopeAdmin, AdminBodyMax, "change-campaign",
			"Change limits, window or status, in force for the next claim",
			[]Code{CodeCampaignNotFound, CodeClosed}, byHuma(s.operator.changeCampaign)},
		{"POST", "/v1/campaigns/{id}/close", scopeAdmin, 0, "close-campaign", "Close a campaign for ever",
			[]Code{CodeCampaignNotFound}, byHuma(s.operator.closeCampaign)},
		{"POST", "/v1/campaigns/{id}/packets", scopeAdmin, PacketsBodyMax, "add-packets", "Add packets to a packet campaign, all or none",
			[]Code{CodeCampaignNotFound, CodeClosed, CodeIdempotencyMismatch}, handler{plain: s.operator.postPackets, document: documentPackets}},
		{"GET", "/v1/campaigns/{id}/stock", reads, 0, "get-stock", "Show the stock at one watermark, in units",
			[]Code{CodeCampaignNotFound}, byHuma(s.operator.getStock)},
		{"POST", claimPath, claims, ClaimBodyMax, "claim", "Claim units of a campaign",
			claimCodes, handler{plain: s.claims.PostClaim, document: documentClaim}},
		{"POST", "/v1/claims:batch", claims, BatchBodyMax, "claim-batch", "Make up to 1,000 claims, each on its own",
			nil, handler{plain: s.claims.postBatch, document: documentBatch}},
		{"GET", "/v1/claims/{id}", reads | claims, 0, "get-claim", "Show a claim, found the moment it is answered",
			[]Code{CodeClaimNotFound}, byHuma(s.claimed.getClaim)},
		{"POST", "/v1/claims/{id}/redeem", claims, ResolveBodyMax, "redeem-claim", "Redeem a claim by an order; the same again changes nothing",
			[]Code{CodeClaimNotFound, CodeAlreadyRedeemed, CodeAlreadyReleased}, handler{plain: s.claimed.postRedeem, document: documentRedeem}},
		{"POST", "/v1/claims/{id}/release", claims, ResolveBodyMax, "release-claim", "Release a claim; stock and limits come back, once",
			[]Code{CodeClaimNotFound, CodeAlreadyRedeemed}, handler{plain: s.claimed.postRelease, document: documentRelease}},
		{"GET", userClaimsPath, reads | claims, 0, "list-user-claims", "List a user's claims, newest first, page by page",
			nil, byHuma(s.claimed.getUserClaims)},
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
