-- +goose Up
-- The same tables, columns and keys as on MySQL; SQLite does not hold text to its length, so checks do where strangers choose it.
-- Text compares byte for byte here by itself.
-- Every time is UTC. Every money amount is in minor units. No key is AUTO_INCREMENT: rows are keyed by what they are.
CREATE TABLE IF NOT EXISTS campaigns (
  id               VARCHAR(64)  NOT NULL, -- chosen by the operator; case counts
  kind             VARCHAR(16)  NOT NULL, -- coupon or packet
  name             VARCHAR(200) NOT NULL DEFAULT '',
  status           VARCHAR(16)  NOT NULL, -- open, paused or closed; closed is for ever
  `partition`      INT          NOT NULL, -- which claim stream; follows from the id
  total            BIGINT       NOT NULL, -- units to give away
  per_user         BIGINT       NOT NULL DEFAULT 0, -- units a user may hold; 0 is no limit
  per_user_per_day BIGINT       NOT NULL DEFAULT 0, -- units a user may take in a day of time_zone; 0 is no limit
  time_zone        VARCHAR(64)  NOT NULL, -- IANA name
  starts_at        DATETIME     NULL, -- UTC; NULL is at once
  ends_at          DATETIME     NULL, -- UTC; NULL is never
  low_stock_at     BIGINT       NOT NULL DEFAULT 0, -- units; announced when remaining falls to this
  currency         VARCHAR(3)   NOT NULL DEFAULT '', -- ISO 4217
  sender_id        VARCHAR(128) NOT NULL DEFAULT '', -- user who gets back what is left
  hold_for_ms      BIGINT       NOT NULL DEFAULT 0, -- how long a claim may stay unredeemed; 0 is for ever
  version          BIGINT       NOT NULL DEFAULT 1, -- changes of the definition, counted from 1
  applied_version  BIGINT       NOT NULL DEFAULT 0, -- last version that Redis is known to hold
  epoch            BIGINT       NOT NULL DEFAULT 0, -- load into Redis that is in force; 0 is never loaded
  load_attempts    BIGINT       NOT NULL DEFAULT 0, -- loads ever begun; numbers the epochs
  created_digest   VARCHAR(64)  NOT NULL DEFAULT '', -- SHA-256 of the definition as created, to know a repeated creation
  remaining        BIGINT       NOT NULL, -- units; never below what Redis says remains
  claimed          BIGINT       NOT NULL DEFAULT 0, -- units of live claims that have their row
  synced_seq       BIGINT       NOT NULL DEFAULT 0, -- accepted claims that have their row
  created_at       DATETIME     NOT NULL, -- UTC
  updated_at       DATETIME     NOT NULL, -- UTC; of the definition or of the books
  PRIMARY KEY (id),
  CONSTRAINT campaigns_remaining_not_negative CHECK (remaining >= 0),
  CONSTRAINT campaigns_claimed_not_negative CHECK (claimed >= 0)
);

CREATE TABLE IF NOT EXISTS claims (
  id          VARCHAR(64)  NOT NULL, -- the claim's own id, which is also the id of its event
  campaign_id VARCHAR(64)  NOT NULL,
  shard       INT          NOT NULL DEFAULT 0, -- part of a campaign that is spread over several; 0 until one is
  seq         BIGINT       NOT NULL, -- from 1, without gaps, per campaign and shard
  user_id     VARCHAR(128) NOT NULL,
  quantity    BIGINT       NOT NULL, -- units
  status      VARCHAR(16)  NOT NULL, -- claimed, redeemed, released or expired
  key_digest  VARCHAR(64)  NOT NULL DEFAULT '', -- digest of the client's idempotency key; empty when it sent none
  epoch       BIGINT       NOT NULL DEFAULT 0, -- load of the campaign into Redis that took the claim
  packet_id   VARCHAR(64)  NULL,
  amount      BIGINT       NULL, -- minor units of the campaign's currency
  order_id    VARCHAR(128) NULL, -- the order that redeemed it
  claimed_at  DATETIME     NOT NULL, -- UTC, by the clock of Redis
  synced_at   DATETIME     NOT NULL, -- UTC, when this row was written
  PRIMARY KEY (id),
  CONSTRAINT claims_lengths CHECK (length(id) <= 64 AND length(campaign_id) <= 64 AND length(user_id) <= 128 AND length(key_digest) <= 64
    AND length(packet_id) <= 64 AND length(order_id) <= 128),
  CONSTRAINT claims_quantity_positive CHECK (quantity > 0),
  CONSTRAINT claims_seq_positive CHECK (seq > 0)
);
CREATE UNIQUE INDEX IF NOT EXISTS claims_place ON claims (campaign_id, shard, seq);
CREATE INDEX IF NOT EXISTS claims_of_user ON claims (user_id, campaign_id);

CREATE TABLE IF NOT EXISTS packets (
  campaign_id VARCHAR(64)  NOT NULL,
  id          VARCHAR(64)  NOT NULL, -- chosen by the operator or made by the split; unique in its campaign
  amount      BIGINT       NOT NULL, -- minor units of the campaign's currency
  user_id     VARCHAR(128) NULL, -- who took it; NULL until taken
  claim_id    VARCHAR(64)  NULL, -- the claim that took it
  release_at  DATETIME     NULL, -- UTC; NULL is at once
  returned_at DATETIME     NULL, -- UTC, when its amount went back to the sender
  created_at  DATETIME     NOT NULL, -- UTC
  PRIMARY KEY (campaign_id, id),
  CONSTRAINT packets_amount_not_negative CHECK (amount >= 0)
);
CREATE UNIQUE INDEX IF NOT EXISTS packets_claim ON packets (claim_id);
CREATE INDEX IF NOT EXISTS packets_of_user ON packets (user_id, campaign_id);

CREATE TABLE IF NOT EXISTS stock_flushes (
  id          VARCHAR(64) NOT NULL, -- UUIDv7: sorts by time
  campaign_id VARCHAR(64) NOT NULL,
  units       BIGINT      NOT NULL, -- units that this flush took from remaining
  claims      BIGINT      NOT NULL, -- rows that it put into claims
  first_seq   BIGINT      NOT NULL, -- lowest seq among them
  last_seq    BIGINT      NOT NULL, -- highest seq among them; holes between are claims of other flushes
  took_ms     BIGINT      NOT NULL, -- from the start of the transaction to this row
  flushed_at  DATETIME    NOT NULL, -- UTC
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS stock_flushes_of_campaign ON stock_flushes (campaign_id, flushed_at);

CREATE TABLE IF NOT EXISTS reconciliations (
  id              VARCHAR(64) NOT NULL, -- UUIDv7: sorts by time
  campaign_id     VARCHAR(64) NOT NULL,
  redis_remaining BIGINT      NULL, -- units; NULL when Redis did not hold the campaign
  mysql_remaining BIGINT      NOT NULL, -- units
  backlog         BIGINT      NULL, -- accepted claims without their row yet
  drift           BIGINT      NULL, -- units at the common watermark, Redis less MySQL; a lag is no drift
  at              DATETIME    NOT NULL, -- UTC
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS reconciliations_of_campaign ON reconciliations (campaign_id, at);

CREATE TABLE IF NOT EXISTS accounts (
  user_id    VARCHAR(128) NOT NULL,
  currency   VARCHAR(3)   NOT NULL, -- ISO 4217
  amount     BIGINT       NOT NULL, -- minor units; the sum of the entries
  entries    BIGINT       NOT NULL, -- how many entries that sum has
  updated_at DATETIME     NOT NULL, -- UTC
  PRIMARY KEY (user_id, currency)
);

CREATE TABLE IF NOT EXISTS account_entries (
  claim_id    VARCHAR(64)  NOT NULL, -- one entry a claim, however often its event comes
  user_id     VARCHAR(128) NOT NULL,
  campaign_id VARCHAR(64)  NOT NULL,
  packet_id   VARCHAR(64)  NULL,
  amount      BIGINT       NOT NULL, -- minor units
  currency    VARCHAR(3)   NOT NULL, -- ISO 4217
  claimed_at  DATETIME     NOT NULL, -- UTC
  credited_at DATETIME     NOT NULL, -- UTC
  PRIMARY KEY (claim_id)
);
CREATE INDEX IF NOT EXISTS account_entries_of_user ON account_entries (user_id, currency);

CREATE TABLE IF NOT EXISTS parked_events (
  id          VARCHAR(64)  NOT NULL, -- id of the event, or the SHA-256 of its payload when it has no usable id
  campaign_id VARCHAR(64)  NOT NULL, -- as the event says; there may be no such campaign
  reason      VARCHAR(500) NOT NULL, -- why it could not be written
  payload     BLOB         NOT NULL, -- the event as it came
  parked_at   DATETIME     NOT NULL, -- UTC
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS parked_events_of_campaign ON parked_events (campaign_id);

CREATE TABLE IF NOT EXISTS settings (
  name  VARCHAR(64)  NOT NULL,
  value VARCHAR(255) NOT NULL,
  PRIMARY KEY (name)
);

CREATE VIEW IF NOT EXISTS stock_watch AS
SELECT c.id AS campaign_id, c.kind, c.status, c.total, c.remaining, c.claimed,
  r.backlog, r.drift, r.at AS compared_at,
  f.last_flush_at, CAST((julianday('now') - julianday(f.last_flush_at)) * 86400 AS INTEGER) AS last_flush_age_seconds
FROM campaigns c
LEFT JOIN (SELECT campaign_id, MAX(flushed_at) AS last_flush_at FROM stock_flushes GROUP BY campaign_id) f
  ON f.campaign_id = c.id
LEFT JOIN reconciliations r
  ON r.id = (SELECT x.id FROM reconciliations x WHERE x.campaign_id = c.id ORDER BY x.at DESC, x.id DESC LIMIT 1);
