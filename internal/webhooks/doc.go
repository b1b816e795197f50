// Package webhooks brings events of the claim streams to HTTP endpoints, signed
// as the Standard Webhooks specification says.
//
// An endpoint gets the events of a campaign in order, one at a time; campaigns
// and endpoints do not wait for each other. Each pair of an endpoint and a
// campaign is a lane:
//
//	Submit ──▶ lane: memory ──▶ POST … 2xx ──▶ settle
//	             │ a failure, or too many wait
//	             └──▶ table webhook_events ──▶ settle        retried from there, in order, with back-off
//	                        │ 24 h
//	                        └──▶ parked: the next delivery says that events are missing, and order resumes
//
// An event is settled once every endpoint that wants it has it, or the table
// holds it. So a receiver that is away costs rows in MySQL, and neither Redis
// nor the other receivers notice it. Delivery is at least once: what is
// delivered again has the same webhook-id.
package webhooks
