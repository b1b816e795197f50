-- +goose Up
-- What became of claims afterwards, and what Redis must still be told of it.
CREATE TABLE IF NOT EXISTS outbox (
  id          VARCHAR(64) NOT NULL, -- UUIDv7: sorts by time; the id of the event, too
  campaign_id VARCHAR(64) NOT NULL,
  kind        VARCHAR(16) NOT NULL, -- release: gives quota back to Redis and tells the event; event: tells it only
  claim_id    VARCHAR(64) NULL, -- the claim that it is about
  payload     BLOB        NOT NULL, -- the event as it goes into the claim stream, JSON
  created_at  DATETIME    NOT NULL, -- UTC
  applied_at  DATETIME    NULL, -- UTC, when Redis had it; NULL until then
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS outbox_by_state ON outbox (applied_at, id);
CREATE INDEX IF NOT EXISTS outbox_of_campaign ON outbox (campaign_id, applied_at);
ALTER TABLE campaigns ADD COLUMN released_claims BIGINT NOT NULL DEFAULT 0; -- claims that were released or expired, ever
ALTER TABLE claims ADD COLUMN resolved_at DATETIME NULL; -- UTC, when it was redeemed, released or expired; NULL until then
ALTER TABLE claims ADD COLUMN release_reason VARCHAR(200) NOT NULL DEFAULT ''; -- why it was released, in the words of who did
