// Package webhooks delivers events of the claim streams to HTTP
// endpoints, signed by the Standard Webhooks specification.
//
// An endpoint gets a campaign's events in order, one at a time.
// Campaigns and endpoints do not wait for each other. Each pair
// of an endpoint and a campaign is a lane:
//
//	Submit ──▶ lane: memory ──▶ POST … 2xx ──▶ settle
//	             │ a failure, or too many wait
//	             └──▶ table webhook_events ──▶ settle        retried from there, in order, with back-off
//	                        │ 24 h
//	                        └──▶ parked: the next delivery says that events are missing, and order resumes
//
// An event is settled once every subscribed endpoint has it or
// the table holds it. So an unreachable receiver costs rows in
// MySQL, but does not affect Redis or other receivers. Delivery
// is at least once. A repeated delivery has the same webhook-id.
package webhooks
