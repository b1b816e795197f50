-- +goose Up
-- Packets get their place in the campaign, by which Redis is told of them, and the requests that brought them are kept, so that one
-- that is sent again is known. No program wrote packets before this file.
ALTER TABLE packets ADD COLUMN position BIGINT NOT NULL DEFAULT 0; -- from 1, without gaps, per campaign; Redis is told of packets in this order
CREATE UNIQUE INDEX IF NOT EXISTS packets_place ON packets (campaign_id, position);

CREATE TABLE IF NOT EXISTS packet_batches (
  campaign_id    VARCHAR(64) NOT NULL,
  first_position BIGINT      NOT NULL, -- of its packets; the others follow without gaps
  packets        BIGINT      NOT NULL, -- how many
  amount         BIGINT      NOT NULL, -- their sum, minor units of the campaign's currency
  release_at     DATETIME    NULL, -- UTC; NULL is at once
  request_key    VARCHAR(64) NOT NULL, -- digest of the client's idempotency key, or of the list; else made for this request
  digest         VARCHAR(64) NOT NULL, -- SHA-256 of what was asked for, to know a repeated request
  created_at     DATETIME    NOT NULL, -- UTC
  PRIMARY KEY (campaign_id, first_position)
);
CREATE UNIQUE INDEX IF NOT EXISTS packet_batches_request ON packet_batches (campaign_id, request_key);
CREATE INDEX IF NOT EXISTS packet_batches_digest ON packet_batches (campaign_id, digest);
