-- +goose Up
-- What repairs changed, for people who ask later.
CREATE TABLE IF NOT EXISTS repairs (
  id           VARCHAR(64)  NOT NULL, -- UUIDv7: sorts by time
  campaign_id  VARCHAR(64)  NOT NULL,
  what         VARCHAR(64)  NOT NULL, -- which part of the books was put right: claims, campaigns or redis
  value_before VARCHAR(500) NOT NULL, -- what was there
  value_after  VARCHAR(500) NOT NULL, -- what is there now, and by what evidence
  at           DATETIME     NOT NULL, -- UTC
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS repairs_of_campaign ON repairs (campaign_id, at);
