-- +goose Up
-- The schema that every later migration builds on. Each statement may run twice. The same tables, columns and keys as on MySQL; SQLite does
-- not hold text to its length, so checks do where the text is a client's. Text compares byte for byte here by itself.
CREATE TABLE IF NOT EXISTS lots (
  id                  VARCHAR(64) NOT NULL, -- of the campaign in row 0: chosen by the operator, case counts; of a shard <campaign>#<shard>
  campaign_id         VARCHAR(64) GENERATED ALWAYS AS (substr(id, 1, instr(id || '#', '#') - 1)) VIRTUAL, -- of the campaign; follows from id
  shard               INT GENERATED ALWAYS AS (CASE WHEN instr(id, '#') = 0 THEN 0 ELSE CAST(substr(id, instr(id, '#') + 1) AS INTEGER) END) VIRTUAL, -- 0: the campaign; shards follow from 1; 65 is the reserve of a campaign of several shards
  kind                VARCHAR(16) NOT NULL, -- coupon or packet
  name                VARCHAR(200) NOT NULL DEFAULT '',
  status              VARCHAR(16) NOT NULL, -- open, paused or closed; closed is for ever
  `partition`         INT NOT NULL, -- which claim stream; follows from the id
  shards              INT NOT NULL DEFAULT 1, -- over how many shards the campaign is spread
  per_user            BIGINT NOT NULL DEFAULT 0, -- units a user may hold; 0 is no limit
  per_user_per_day    BIGINT NOT NULL DEFAULT 0, -- units a user may take in a day of time_zone; 0 is no limit
  limits              VARCHAR(2000) NOT NULL DEFAULT '', -- the other limits, JSON; empty is none
  shard_by            VARCHAR(32) NOT NULL DEFAULT '', -- subject whose value decides about the shard of a claim; empty is its user
  time_zone           VARCHAR(64) NOT NULL, -- IANA name
  starts_at           DATETIME NULL, -- UTC; NULL is at once
  ends_at             DATETIME NULL, -- UTC; NULL is never
  low_stock_at        BIGINT NOT NULL DEFAULT 0, -- units; announced when remaining falls to this
  currency            VARCHAR(3) NOT NULL DEFAULT '', -- ISO 4217
  sender_id           VARCHAR(128) NOT NULL DEFAULT '', -- user who gets back what is left
  hold_for_ms         BIGINT NOT NULL DEFAULT 0, -- how long a claim may stay unredeemed; 0 is for ever
  version             BIGINT NOT NULL DEFAULT 1, -- changes of the definition, counted from 1
  changes             BIGINT NOT NULL DEFAULT 1, -- definitions that there were, counted from 1
  created_digest      VARCHAR(64) NOT NULL DEFAULT '', -- SHA-256 of the definition as created, to know a repeated creation
  created_at          DATETIME NOT NULL, -- UTC
  updated_at          DATETIME NOT NULL, -- UTC; of the definition or of the books
  total               BIGINT NOT NULL, -- units of this lot; in row 0 of the campaign; below 0 while a lot owes units
  redis_total         BIGINT NOT NULL DEFAULT 0, -- units that Redis may still sell by, while a lower total is on its way to it; else 0
  claimed             BIGINT NOT NULL DEFAULT 0, -- units of live claims that have their row: of this lot, in row 0 of all lots of the campaign
  synced_seq          BIGINT NOT NULL DEFAULT 0, -- accepted claims that have their row: of this lot, in row 0 of all lots of the campaign
  released_claims     BIGINT NOT NULL DEFAULT 0, -- claims that were released or expired, ever
  lost_claims         BIGINT NOT NULL DEFAULT 0, -- seqs that a repair gave up: no row has them
  remaining           BIGINT GENERATED ALWAYS AS (MAX(MAX(total, redis_total) - claimed, 0)) VIRTUAL, -- units; of the campaign in row 0, never below what Redis says remains; of a shard it promises nothing while units move
  applied_version     BIGINT NOT NULL DEFAULT 0, -- last version that Redis is known to hold
  epoch               BIGINT NOT NULL DEFAULT 0, -- load into Redis that is in force; 0 is never loaded
  load_attempts       BIGINT NOT NULL DEFAULT 0, -- loads ever begun; numbers the epochs
  residency           VARCHAR(16) NOT NULL DEFAULT 'none', -- where the stock is: none (never in Redis), resident, evicted (complete here), lost (takes no claims)
  residency_reason    VARCHAR(500) NOT NULL DEFAULT '', -- why it is lost
  residency_at        DATETIME NULL, -- UTC, since when it is where it is
  stream_birth        VARCHAR(64) NOT NULL DEFAULT '', -- mark of the claim stream, in streams, when the campaign was loaded
  fence_tip           VARCHAR(120) NOT NULL DEFAULT '', -- of a lost lot: mark of the claim stream and its highest entry id after Redis took no more claims; empty: not known
  loader              VARCHAR(36) NOT NULL DEFAULT '', -- who loads a lot of the campaign into Redis; empty: no one
  loading_until       DATETIME NULL, -- UTC, until when the loader has it to itself, unless that is renewed
  seen_seq            BIGINT NOT NULL DEFAULT 0, -- highest seq of this epoch that was seen in Redis and that Redis then did not hold
  tseq                BIGINT NOT NULL DEFAULT 0, -- of a lot of a campaign of several shards: its debits and credits that have their row in stock_moves
  lowered             BIGINT NOT NULL DEFAULT 0, -- of a campaign of several shards: units by which its total was ever lowered
  archived_claims     BIGINT NOT NULL DEFAULT 0, -- claims whose rows were moved away; synced_seq counts them still
  archived_units      BIGINT NOT NULL DEFAULT 0, -- units of those that were live; claimed counts them still
  archived_released   BIGINT NOT NULL DEFAULT 0, -- how many of them were released or expired; released_claims counts them still
  archived_to         TEXT NOT NULL DEFAULT '', -- file that claims were archived to last; empty: none, or only to claims_archive
  closed_told_at      DATETIME NULL, -- UTC, when all was settled and campaign.closed written; NULL until then
  told_line           INT NOT NULL DEFAULT 0, -- of a campaign of several shards, which line of its stock was told: 1 low, 2 sold out
  PRIMARY KEY (id),
  CONSTRAINT lots_total_not_negative CHECK (shards > 1 OR total >= 0),
  CONSTRAINT lots_claimed_not_negative CHECK (claimed >= 0)
);
CREATE UNIQUE INDEX IF NOT EXISTS lots_place ON lots (campaign_id, shard);
CREATE INDEX IF NOT EXISTS lots_of_residency ON lots (residency, id);
CREATE INDEX IF NOT EXISTS lots_to_end ON lots (status, closed_told_at);
CREATE INDEX IF NOT EXISTS lots_of_shards ON lots (shards, shard);

CREATE TABLE IF NOT EXISTS claims (
  id             VARCHAR(64) NOT NULL, -- the claim's own id, which is also the id of its event
  campaign_id    VARCHAR(64) NOT NULL,
  shard          INT NOT NULL DEFAULT 0, -- of the campaign, from 1; 0 in a campaign of one shard
  seq            BIGINT NOT NULL, -- from 1, without gaps, per campaign and shard
  user_id        VARCHAR(128) NOT NULL,
  quantity       BIGINT NOT NULL, -- units
  status         VARCHAR(16) NOT NULL, -- claimed, redeemed, released or expired
  key_digest     VARCHAR(64) NOT NULL DEFAULT '', -- digest of the client's idempotency key; empty when it sent none
  subjects       VARCHAR(4000) NULL, -- what limits count the claim under beside its user, JSON; NULL is nothing
  epoch          BIGINT NOT NULL DEFAULT 0, -- load of the campaign into Redis that took the claim
  packet_id      VARCHAR(64) NULL,
  amount         BIGINT NULL, -- minor units of the campaign's currency
  order_id       VARCHAR(128) NULL, -- the order that redeemed it; see claim_orders
  claimed_at     DATETIME NOT NULL, -- UTC, by the clock of Redis
  synced_at      DATETIME NOT NULL, -- UTC, when this row was written
  resolved_at    DATETIME NULL, -- UTC, when it was redeemed, released or expired; NULL until then
  release_reason VARCHAR(200) NOT NULL DEFAULT '', -- why it was released, in the words of who did
  PRIMARY KEY (id),
  CONSTRAINT claims_lengths CHECK (length(id) <= 64 AND length(campaign_id) <= 64 AND length(user_id) <= 128 AND length(key_digest) <= 64
    AND length(packet_id) <= 64 AND length(order_id) <= 128),
  CONSTRAINT claims_quantity_positive CHECK (quantity > 0),
  CONSTRAINT claims_seq_positive CHECK (seq > 0)
);
CREATE UNIQUE INDEX IF NOT EXISTS claims_place ON claims (campaign_id, shard, seq);
CREATE INDEX IF NOT EXISTS claims_of_user ON claims (user_id, claimed_at, id);

CREATE TABLE IF NOT EXISTS claim_orders (
  order_id VARCHAR(128) NOT NULL,
  claim_id VARCHAR(64) NOT NULL, -- that the order redeemed
  PRIMARY KEY (order_id, claim_id)
);

CREATE TABLE IF NOT EXISTS claims_archive (
  id             VARCHAR(64) NOT NULL, -- as in claims, like all columns but the last
  campaign_id    VARCHAR(64) NOT NULL,
  shard          INT NOT NULL,
  seq            BIGINT NOT NULL,
  user_id        VARCHAR(128) NOT NULL,
  quantity       BIGINT NOT NULL,
  status         VARCHAR(16) NOT NULL,
  key_digest     VARCHAR(64) NOT NULL,
  subjects       VARCHAR(4000) NULL,
  epoch          BIGINT NOT NULL,
  packet_id      VARCHAR(64) NULL,
  amount         BIGINT NULL,
  order_id       VARCHAR(128) NULL,
  claimed_at     DATETIME NOT NULL,
  synced_at      DATETIME NOT NULL,
  resolved_at    DATETIME NULL,
  release_reason VARCHAR(200) NOT NULL,
  archived_at    DATETIME NOT NULL, -- UTC
  PRIMARY KEY (campaign_id, shard, seq)
);

CREATE TABLE IF NOT EXISTS stock_flushes (
  id               VARCHAR(64) NOT NULL, -- UUIDv7: sorts by time
  campaign_id      VARCHAR(64) NOT NULL,
  shard            INT NOT NULL DEFAULT 0, -- shard of the campaign, from 1; 0 in a campaign of one shard
  units            BIGINT NOT NULL, -- units that this flush took from remaining
  claims           BIGINT NOT NULL, -- rows that it put into claims
  first_seq        BIGINT NOT NULL, -- lowest seq among them
  last_seq         BIGINT NOT NULL, -- highest seq among them; holes between are claims of other flushes
  took_ms          BIGINT NOT NULL, -- from the start of the transaction to this row
  flushed_at       DATETIME NOT NULL, -- UTC
  first_claimed_ms BIGINT NOT NULL DEFAULT 0, -- when the earliest of these claims was made, milliseconds since 1970 by the clock of Redis
  due_ms           BIGINT NULL, -- when the first open hold in first_seq to last_seq ends, milliseconds since 1970 by the clock of Redis; NULL: none is open
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS stock_flushes_of_campaign ON stock_flushes (campaign_id, flushed_at);
CREATE INDEX IF NOT EXISTS stock_flushes_due ON stock_flushes (due_ms, id);

CREATE TABLE IF NOT EXISTS stock_moves (
  campaign_id VARCHAR(64) NOT NULL,
  shard       INT NOT NULL, -- the lot: a shard, from 1, or 65, the reserve
  tseq        BIGINT NOT NULL, -- counts the rows of the lot, from 1, in the order of Redis
  kind        VARCHAR(16) NOT NULL, -- units.debited: from this lot to peer; units.credited: from peer to this lot
  peer        INT NOT NULL, -- the other lot; 0 is the total of the campaign
  units       BIGINT NOT NULL,
  cumulative  BIGINT NOT NULL, -- units of this lot, kind and peer, this row included
  packets     TEXT NULL, -- ids, joined by commas
  epoch       BIGINT NOT NULL, -- load of the lot into Redis that this happened in
  event_id    VARCHAR(64) NOT NULL, -- empty: the creation of the campaign made the row, or a load of the lot
  at          DATETIME NOT NULL, -- UTC
  PRIMARY KEY (campaign_id, shard, tseq)
);

CREATE TABLE IF NOT EXISTS packets (
  campaign_id VARCHAR(64) NOT NULL,
  id          VARCHAR(64) NOT NULL, -- chosen by the operator or made by the split; unique in its campaign
  position    BIGINT NOT NULL, -- from 1, without gaps, per campaign; Redis is notified of packets in this order
  amount      BIGINT NOT NULL, -- minor units of the campaign's currency
  user_id     VARCHAR(128) NULL, -- who took it; NULL until taken
  claim_id    VARCHAR(64) NULL, -- the claim that took it
  release_at  DATETIME NULL, -- UTC; NULL is at once
  returned_at DATETIME NULL, -- UTC, when its amount returned to the sender
  created_at  DATETIME NOT NULL, -- UTC
  PRIMARY KEY (campaign_id, id),
  CONSTRAINT packets_amount_not_negative CHECK (amount >= 0)
);
CREATE UNIQUE INDEX IF NOT EXISTS packets_place ON packets (campaign_id, position);
CREATE UNIQUE INDEX IF NOT EXISTS packets_claim ON packets (claim_id);
CREATE INDEX IF NOT EXISTS packets_of_user ON packets (user_id, campaign_id);

CREATE TABLE IF NOT EXISTS packet_batches (
  campaign_id    VARCHAR(64) NOT NULL,
  first_position BIGINT NOT NULL, -- of its packets; the others follow without gaps
  packets        BIGINT NOT NULL, -- how many
  amount         BIGINT NOT NULL, -- their sum, minor units of the campaign's currency
  release_at     DATETIME NULL, -- UTC; NULL is at once
  request_key    VARCHAR(64) NOT NULL, -- digest of the client's idempotency key, or of the list; else made for this request
  digest         VARCHAR(64) NOT NULL, -- SHA-256 of what was asked for, to know a repeated request
  created_at     DATETIME NOT NULL, -- UTC
  PRIMARY KEY (campaign_id, first_position)
);
CREATE UNIQUE INDEX IF NOT EXISTS packet_batches_request ON packet_batches (campaign_id, request_key);
CREATE INDEX IF NOT EXISTS packet_batches_digest ON packet_batches (campaign_id, digest);
CREATE INDEX IF NOT EXISTS packet_batches_release ON packet_batches (campaign_id, release_at, packets);

CREATE TABLE IF NOT EXISTS outbox (
  id          VARCHAR(64) NOT NULL, -- UUIDv7: sorts by time; the id of the event, too
  campaign_id VARCHAR(64) NOT NULL,
  kind        VARCHAR(16) NOT NULL, -- release: gives quota back to Redis and tells the event; event: tells it only
  claim_id    VARCHAR(64) NULL, -- the claim that it is about
  payload     BLOB NOT NULL, -- the event as it goes into the claim stream, JSON
  created_at  DATETIME NOT NULL, -- UTC
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS outbox_of_campaign ON outbox (campaign_id);

CREATE TABLE IF NOT EXISTS parked_events (
  id           VARCHAR(64) NOT NULL, -- id of the event, or the SHA-256 of its payload when it has no usable id
  campaign_id  VARCHAR(64) NOT NULL, -- as the event says; there may be no such campaign
  user_id      VARCHAR(128) NOT NULL DEFAULT '', -- as the event says; empty when it says none
  reason       VARCHAR(500) NOT NULL, -- why it could not be written
  payload      BLOB NOT NULL, -- the event as it came
  parked_at    DATETIME NOT NULL, -- UTC
  discarded_at DATETIME NULL, -- UTC, when someone gave it up; NULL: what it claims still counts as claimed
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS parked_events_of_campaign ON parked_events (campaign_id);
CREATE INDEX IF NOT EXISTS parked_events_of_user ON parked_events (user_id);

CREATE TABLE IF NOT EXISTS streams (
  `partition` INT NOT NULL, -- which claim stream
  birth       VARCHAR(64) NOT NULL, -- mark that Redis holds too, as long as nothing of the stream was lost
  tip         VARCHAR(64) NOT NULL, -- highest entry id that was seen in the stream; it never decreases
  tip_at      DATETIME NOT NULL, -- UTC
  added       BIGINT NOT NULL DEFAULT 0, -- entries that were ever in the stream when tip was seen
  loss        VARCHAR(500) NOT NULL DEFAULT '', -- what Redis lost of the stream last; empty when it never lost any
  unbooked    TEXT NULL, -- claims without rows when tip was seen: highest seq by campaign or shard; JSON
  unexplained BIGINT NOT NULL DEFAULT 0, -- claims that Redis lost and that are of unknown campaigns
  PRIMARY KEY (`partition`)
);

CREATE TABLE IF NOT EXISTS reconciliations (
  id              VARCHAR(64) NOT NULL, -- UUIDv7: sorts by time
  campaign_id     VARCHAR(64) NOT NULL,
  redis_remaining BIGINT NULL, -- units; NULL when Redis did not hold the campaign
  mysql_remaining BIGINT NOT NULL, -- units
  backlog         BIGINT NULL, -- accepted claims without their row yet
  drift           BIGINT NULL, -- units at the common watermark, Redis less MySQL; a lag is no drift
  at              DATETIME NOT NULL, -- UTC
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS reconciliations_of_campaign ON reconciliations (campaign_id, at);

CREATE TABLE IF NOT EXISTS repairs (
  id           VARCHAR(64) NOT NULL, -- UUIDv7: sorts by time
  campaign_id  VARCHAR(64) NOT NULL,
  what         VARCHAR(64) NOT NULL, -- which part of the books was put right: claims, campaigns or redis
  value_before VARCHAR(500) NOT NULL, -- what was there
  value_after  VARCHAR(500) NOT NULL, -- what is there now, and by what evidence
  at           DATETIME NOT NULL, -- UTC
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS repairs_of_campaign ON repairs (campaign_id, at);

CREATE TABLE IF NOT EXISTS audit_log (
  id          VARCHAR(36) NOT NULL, -- UUIDv7: sorts by time
  at          DATETIME NOT NULL, -- UTC
  actor       VARCHAR(128) NOT NULL, -- name of the token, sub of the JWT, or cli: and the user of the command; empty for a token that is no one's
  request_id  VARCHAR(64) NOT NULL, -- X-Request-Id; empty for a command
  action      VARCHAR(64) NOT NULL, -- such as campaign.changed
  campaign_id VARCHAR(64) NOT NULL DEFAULT '', -- empty when it is about none
  `before`    JSON NULL, -- what was there, as far as it changed
  `after`     JSON NULL, -- what is there now, as far as it changed
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS audit_by_time ON audit_log (at, id);
CREATE INDEX IF NOT EXISTS audit_of_campaign ON audit_log (campaign_id, at, id);

CREATE TABLE IF NOT EXISTS accounts (
  user_id    VARCHAR(128) NOT NULL,
  currency   VARCHAR(3) NOT NULL, -- ISO 4217
  amount     BIGINT NOT NULL, -- minor units; the sum of the entries
  entries    BIGINT NOT NULL, -- how many entries that sum has
  updated_at DATETIME NOT NULL, -- UTC
  PRIMARY KEY (user_id, currency)
);

CREATE TABLE IF NOT EXISTS account_entries (
  claim_id    VARCHAR(64) NOT NULL, -- one entry a claim, however often its event comes
  user_id     VARCHAR(128) NOT NULL,
  campaign_id VARCHAR(64) NOT NULL,
  shard       INT NOT NULL DEFAULT 0, -- of the campaign, from 1, in which seq counts; 0 in a campaign of one shard
  seq         BIGINT NULL, -- of the claim in its campaign and shard; NULL: it is not known
  packet_id   VARCHAR(64) NULL,
  amount      BIGINT NOT NULL, -- minor units
  currency    VARCHAR(3) NOT NULL, -- ISO 4217
  claimed_at  DATETIME NOT NULL, -- UTC
  credited_at DATETIME NOT NULL, -- UTC
  PRIMARY KEY (claim_id)
);
CREATE UNIQUE INDEX IF NOT EXISTS account_entries_packet ON account_entries (campaign_id, packet_id);
CREATE INDEX IF NOT EXISTS account_entries_of_user ON account_entries (user_id, currency);

CREATE TABLE IF NOT EXISTS settings (
  name  VARCHAR(64) NOT NULL,
  value VARCHAR(255) NOT NULL,
  PRIMARY KEY (name)
);

CREATE TABLE IF NOT EXISTS consumer_groups (
  name          TEXT     NOT NULL PRIMARY KEY, -- as in XGROUP CREATE
  registered_at DATETIME NOT NULL              -- UTC
);

CREATE TABLE IF NOT EXISTS ledger_events (
  campaign_id TEXT     NOT NULL,
  at          DATETIME NOT NULL, -- UTC, of the event
  id          TEXT     NOT NULL, -- of the event
  type        TEXT     NOT NULL, -- claim.redeemed, claim.released, claims.given_up or campaign.closed
  claims      BIGINT   NOT NULL, -- how many claims it is about
  units       BIGINT   NOT NULL, -- of these claims, as far as they are known
  amount      BIGINT   NOT NULL, -- minor units of the campaign's currency: given up, or returned to the sender
  payload     BLOB     NOT NULL, -- the event as it goes into the claim stream, JSON
  PRIMARY KEY (campaign_id, at, id)
);

-- See ledger.Time.
INSERT INTO settings (name, value) SELECT 'ledger_upto', '1970-01-01 00:00:00.000'
  WHERE NOT EXISTS (SELECT 1 FROM settings WHERE name = 'ledger_upto');

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
CREATE INDEX IF NOT EXISTS webhook_events_waiting ON webhook_events (endpoint, parked_at, at);

CREATE VIEW IF NOT EXISTS campaigns AS
SELECT id, kind, name, status, `partition`, shards, total, redis_total, remaining,
  claimed, synced_seq, released_claims, lost_claims,
  per_user, per_user_per_day, limits, shard_by, time_zone, starts_at, ends_at,
  low_stock_at, currency, sender_id, hold_for_ms, version, changes, created_digest, created_at, updated_at, applied_version, epoch,
  load_attempts, residency, residency_reason, residency_at, stream_birth, seen_seq, tseq, archived_claims, archived_units,
  archived_released, closed_told_at, told_line
FROM lots WHERE shard = 0;

CREATE VIEW IF NOT EXISTS campaign_shards AS
SELECT id, campaign_id, shard, kind, name, status, `partition`, shards, total, total AS granted, redis_total, remaining, claimed, synced_seq,
  released_claims, lost_claims, per_user, per_user_per_day, limits, shard_by, time_zone, starts_at, ends_at, low_stock_at, currency, sender_id, hold_for_ms,
  version, changes, created_digest, created_at, updated_at, applied_version, epoch, load_attempts, residency, residency_reason,
  residency_at, stream_birth, seen_seq, tseq, archived_claims, archived_units, archived_released, closed_told_at, told_line
FROM lots WHERE shard BETWEEN 1 AND 64;

CREATE VIEW IF NOT EXISTS stock_watch AS
SELECT c.id AS campaign_id, c.kind, c.status, c.total, c.remaining, c.claimed,
  r.backlog, r.drift, r.at AS compared_at,
  (SELECT f.flushed_at FROM stock_flushes f WHERE f.campaign_id = c.id ORDER BY f.flushed_at DESC LIMIT 1) AS last_flush_at,
  CAST((julianday('now') - julianday((SELECT f.flushed_at FROM stock_flushes f WHERE f.campaign_id = c.id
    ORDER BY f.flushed_at DESC LIMIT 1))) * 86400 AS INTEGER) AS last_flush_age_seconds
FROM campaigns c
LEFT JOIN reconciliations r
  ON r.id = (SELECT x.id FROM reconciliations x WHERE x.campaign_id = c.id ORDER BY x.at DESC, x.id DESC LIMIT 1);
