package api

import (
	"dibs/api/auth"
	"dibs/api/claimed"
	"dibs/api/claiming/form"
	"dibs/api/live"
	"dibs/api/operator"
	"dibs/api/route"
	"dibs/api/wire"
	"dibs/docs/asyncapi"
)

func (s *Server) routes() []route.Row {
	const admin, reads, claims, user = auth.Admin, auth.Viewer, auth.Storefront, auth.User
	const noCampaign, noClaim, invalid = wire.CodeCampaignNotFound, wire.CodeClaimNotFound, wire.CodeInvalid
	const closed, changed, full = wire.CodeClosed, wire.CodePreconditionFailed, wire.CodeTooManyWatchers
	const redeemed, released, parked = wire.CodeAlreadyRedeemed, wire.CodeAlreadyReleased, wire.CodeClaimParked
	ops := s.operator
	made := s.claimed
	claim := s.claiming
	json := wire.JSONContentType[0]
	on := route.On
	plain := route.Plain
	watch := plain(s.whileAllowed(reads|claims, s.live.GetWatch), live.DocumentWatch, noCampaign, invalid, full)
	return []route.Row{
		on("POST", "/v1/campaigns", admin, operator.BodyMax, "create-campaign", route.Huma(ops.CreateCampaign, wire.CodeCampaignExists)),
		on("GET", "/v1/campaigns", reads, 0, "list-campaigns", route.Huma(ops.ListCampaigns)),
		on("GET", "/v1/campaigns/{id}", reads|claims|user, 0, "get-campaign", route.Huma(ops.GetCampaign, noCampaign, changed)),
		on("PATCH", "/v1/campaigns/{id}", admin, operator.BodyMax, "change-campaign",
			route.Huma(ops.ChangeCampaign, noCampaign, closed, changed)),
		on("DELETE", "/v1/campaigns/{id}", admin, 0, "delete-campaign", route.Huma(ops.DeleteCampaign, noCampaign, wire.CodeClaimed)),
		on("POST", "/v1/campaigns:pause", admin, 0, "pause-campaigns", route.Huma(ops.PauseCampaigns)),
		on("POST", "/v1/campaigns/{id}/close", admin, 0, "close-campaign", route.Huma(ops.CloseCampaign, noCampaign, changed)),
		on("POST", "/v1/campaigns/{id}/packets", admin, operator.PacketsBodyMax, "add-packets",
			plain(ops.PostPackets, operator.DocumentPackets, noCampaign, closed, wire.CodeIdempotencyMismatch)),
		on("GET", "/v1/campaigns/{id}/stock", reads|claims|user, 0, "get-stock", route.Huma(ops.GetStock, noCampaign)),
		on("GET", "/v1/campaigns/{id}/shards", reads, 0, "get-shards", route.Huma(ops.GetShards, noCampaign)),
		on("GET", "/v1/campaigns/{id}/public", auth.Open, 0, "get-public-campaign", plain(s.live.GetPublic, live.DocumentPublic, noCampaign)),
		on("GET", "/v1/campaigns/{id}/watch", reads|claims, 0, "watch-campaign", watch),
		on("GET", "/v1/watch", reads, 0, "watch", plain(s.whileAllowed(reads, s.live.GetWatchAll), live.DocumentWatchAll, full)),
		on("POST", "/v1/watch-tickets", reads|claims, ticketBodyMax, "create-watch-ticket", plain(s.postTicket, documentTicket)),
		on("POST", form.Path, claims|user, form.ClaimBodyMax, "claim",
			plain(claim.PostClaim, form.DocumentClaim, wire.ClaimCodes...)),
		on("GET", form.Path, reads|claims, 0, "list-campaign-claims", route.Huma(made.GetCampaignClaims, noCampaign)),
		on("POST", "/v1/claims:batch", claims|user, form.BatchBodyMax, "claim-batch", plain(claim.PostBatch, form.DocumentBatch)),
		on("GET", "/v1/claims/{id}", reads|claims|user, 0, "get-claim", route.Huma(made.GetClaim, noClaim)),
		on("POST", "/v1/claims/{id}/redeem", claims, claimed.BodyMax, "redeem-claim",
			plain(made.PostRedeem, claimed.DocumentRedeem, noClaim, redeemed, released, parked)),
		on("POST", "/v1/claims/{id}/release", claims|user, claimed.BodyMax, "release-claim",
			plain(made.PostRelease, claimed.DocumentRelease, noClaim, redeemed, parked)),
		on("POST", "/v1/claims/{id}/reopen", claims, claimed.BodyMax, "reopen-claim",
			plain(made.PostReopen, claimed.DocumentReopen, noClaim, wire.CodeNotRedeemed, redeemed, released, parked)),
		on("POST", "/v1/claims/{id}/extend", claims, claimed.BodyMax, "extend-claim",
			plain(made.PostExtend, claimed.DocumentExtend, noClaim, redeemed, released, parked)),
		on("GET", userClaimsPath, reads|claims|user, 0, "list-user-claims", route.Huma(made.GetUserClaims)),
		on("GET", "/v1/campaigns/{id}/ledger", reads, 0, "get-ledger", plain(ops.GetLedger, operator.DocumentLedger, noCampaign)),
		on("GET", "/v1/settlements/{date}", reads, 0, "get-settlement", plain(ops.GetSettlement, operator.DocumentSettlement)),
		on("GET", "/v1/audit", reads, 0, "list-audit", route.Huma(ops.ListAudit)),
		on("GET", "/v1/groups", reads, 0, "list-groups", route.Huma(ops.ListGroups)),
		on("PUT", "/v1/groups/{name}", admin, 0, "add-group", route.Huma(ops.AddGroup)),
		on("DELETE", "/v1/groups/{name}", admin, 0, "remove-group",
			route.Huma(ops.RemoveGroup, wire.CodeGroupNotFound, wire.CodeGroupInUse)),
		on("GET", "/v1/info", infoScope, 0, "get-info", route.Huma(s.getInfo)),
		on("GET", "/healthz", auth.Open, 0, "get-health", plain(s.getHealth, documentHealth)),
		on("GET", "/readyz", auth.Open, 0, "get-ready", plain(s.getReady, documentHealth)),
		on("GET", "/metrics", reads, 0, "get-metrics", plain(s.getMetrics, route.Documented("Prometheus text", "text/plain", route.AnyText))),
		on("GET", "/openapi.json", auth.Open, 0, "get-openapi",
			plain(route.JSON(&s.openAPI), route.Documented("OpenAPI 3.1", json, route.AnyObject))),
		on("GET", "/asyncapi.json", auth.Open, 0, "get-asyncapi",
			plain(route.JSON(&asyncapi.Document), route.Documented("AsyncAPI 3.0", json, route.AnyObject))),
	}
}
