-- +goose Up
CREATE TABLE IF NOT EXISTS webhook_events (
  endpoint    TEXT     NOT NULL,            -- its name in the endpoints file
  campaign_id TEXT     NOT NULL,
  no          BIGINT   NOT NULL,            -- the order of delivery within endpoint and campaign
  event_id    TEXT     NOT NULL,            -- the webhook-id of its deliveries
  type        TEXT     NOT NULL,            -- of the event
  at          DATETIME NOT NULL,            -- UTC, of the event
  payload     BLOB     NOT NULL,            -- the event as it stands in the claim stream, JSON
  created_at  DATETIME NOT NULL,            -- UTC
  parked_at   DATETIME NULL,                -- UTC, when it was given up; NULL: it is still tried
  reason      TEXT     NOT NULL DEFAULT '', -- why it was given up
  announced   INT      NOT NULL DEFAULT 0,  -- 1: a later delivery has told the endpoint that it is missing
  PRIMARY KEY (endpoint, campaign_id, no)
);
CREATE UNIQUE INDEX IF NOT EXISTS webhook_events_once ON webhook_events (endpoint, event_id);
CREATE INDEX IF NOT EXISTS webhook_events_parked ON webhook_events (parked_at);
