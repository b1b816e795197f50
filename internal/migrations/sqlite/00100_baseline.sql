-- +goose Up
-- The schema of ../mysql for SQLite, which the demo and tests use. A test holds the two together. SQLite ignores the length of a VARCHAR, so
-- each has a CHECK. Text compares byte for byte by itself.

CREATE TABLE IF NOT EXISTS definitions (
  campaign_id      VARCHAR(64) NOT NULL CHECK (length(campaign_id) <= 64),
  kind             VARCHAR(16) NOT NULL CHECK (length(kind) <= 16),
  name             VARCHAR(200) NOT NULL DEFAULT '' CHECK (length(name) <= 200),
  status           VARCHAR(16) NOT NULL CHECK (length(status) <= 16),
  shards           INT NOT NULL DEFAULT 1,
  per_user         BIGINT NOT NULL DEFAULT 0,
  per_user_per_day BIGINT NOT NULL DEFAULT 0,
  limits           VARCHAR(2000) NOT NULL DEFAULT '' CHECK (length(limits) <= 2000),
  shard_by         VARCHAR(32) NOT NULL DEFAULT '' CHECK (length(shard_by) <= 32),
  time_zone        VARCHAR(64) NOT NULL CHECK (length(time_zone) <= 64),
  starts_at        DATETIME NULL,
  ends_at          DATETIME NULL,
  low_stock_at     BIGINT NOT NULL DEFAULT 0,
  currency         VARCHAR(3) NOT NULL DEFAULT '' CHECK (length(currency) <= 3),
  sender_id        VARCHAR(128) NOT NULL DEFAULT '' CHECK (length(sender_id) <= 128),
  hold_for_ms      BIGINT NOT NULL DEFAULT 0,
  hold_max_ms      BIGINT NOT NULL DEFAULT 0,
  pause_id         VARCHAR(36) NULL CHECK (length(pause_id) <= 36),
  public           VARCHAR(8) NOT NULL DEFAULT '' CHECK (length(public) <= 8),
  version          BIGINT NOT NULL DEFAULT 1,
  changes          BIGINT NOT NULL DEFAULT 1,
  told_line        INT NOT NULL DEFAULT 0,
  created_digest   VARCHAR(64) NOT NULL DEFAULT '' CHECK (length(created_digest) <= 64),
  created_at       DATETIME NOT NULL,
  closed_told_at   DATETIME NULL,
  PRIMARY KEY (campaign_id)
);
CREATE INDEX IF NOT EXISTS definitions_to_end ON definitions (status, closed_told_at);
CREATE INDEX IF NOT EXISTS definitions_of_shards ON definitions (shards);
CREATE INDEX IF NOT EXISTS definitions_public ON definitions (public, version);

CREATE TABLE IF NOT EXISTS lots (
  campaign_id       VARCHAR(64) NOT NULL CHECK (length(campaign_id) <= 64),
  shard             SMALLINT NOT NULL,
  id                VARCHAR(64) GENERATED ALWAYS AS (CASE WHEN shard = 0 THEN campaign_id ELSE CONCAT(campaign_id, '#', shard) END) STORED,
  partition_no      INT NOT NULL,
  total             BIGINT NOT NULL,
  redis_total       BIGINT NOT NULL DEFAULT 0,
  claimed           BIGINT NOT NULL DEFAULT 0,
  synced_seq        BIGINT NOT NULL DEFAULT 0,
  released_claims   BIGINT NOT NULL DEFAULT 0,
  sold              BIGINT NOT NULL DEFAULT 0,
  lost_claims       BIGINT NOT NULL DEFAULT 0,
  lost_units        BIGINT NOT NULL DEFAULT 0,
  given_up_claims   BIGINT NOT NULL DEFAULT 0,
  given_up_units    BIGINT NOT NULL DEFAULT 0,
  remaining         BIGINT GENERATED ALWAYS AS (MAX(MAX(total, redis_total) - claimed - lost_units, 0)) VIRTUAL,
  applied_version   BIGINT NOT NULL DEFAULT 0,
  untold            TINYINT NULL,
  told_position     BIGINT NOT NULL DEFAULT 0,
  epoch             INT NOT NULL DEFAULT 0,
  load_attempts     INT NOT NULL DEFAULT 0,
  residency         VARCHAR(16) NOT NULL DEFAULT 'none' CHECK (length(residency) <= 16),
  residency_at      DATETIME NULL,
  generation        BIGINT NOT NULL DEFAULT 0,
  reload_upto       INT NOT NULL DEFAULT 0,
  loader            VARCHAR(64) NOT NULL DEFAULT '' CHECK (length(loader) <= 64),
  seen_epoch        INT NOT NULL DEFAULT 0,
  seen_seq          BIGINT NOT NULL DEFAULT 0,
  seen_units        BIGINT NOT NULL DEFAULT 0,
  archived_claims   BIGINT NOT NULL DEFAULT 0,
  archived_units    BIGINT NOT NULL DEFAULT 0,
  archived_sold     BIGINT NOT NULL DEFAULT 0,
  archived_released BIGINT NOT NULL DEFAULT 0,
  updated_at        DATETIME NOT NULL,
  PRIMARY KEY (campaign_id, shard),
  CONSTRAINT lots_total_not_negative CHECK (total >= 0 OR shard > 0),
  CONSTRAINT lots_claimed_not_negative CHECK (claimed >= 0)
);
CREATE UNIQUE INDEX IF NOT EXISTS lots_id ON lots (id);
CREATE INDEX IF NOT EXISTS lots_of_residency ON lots (residency, campaign_id, shard);
CREATE INDEX IF NOT EXISTS lots_untold ON lots (untold);

CREATE TABLE IF NOT EXISTS claims (
  id             VARCHAR(64) NOT NULL CHECK (length(id) <= 64),
  campaign_id    VARCHAR(64) NOT NULL CHECK (length(campaign_id) <= 64),
  shard          SMALLINT NOT NULL DEFAULT 0,
  seq            BIGINT NOT NULL,
  user_id        VARCHAR(128) NOT NULL CHECK (length(user_id) <= 128),
  quantity       INT NOT NULL,
  status         VARCHAR(16) NOT NULL CHECK (length(status) <= 16),
  key_digest     VARCHAR(64) NOT NULL DEFAULT '' CHECK (length(key_digest) <= 64),
  subjects       VARCHAR(4000) NULL CHECK (length(subjects) <= 4000),
  epoch          INT NOT NULL DEFAULT 0,
  packet_id      VARCHAR(64) NULL CHECK (length(packet_id) <= 64),
  amount         BIGINT NULL,
  order_id       VARCHAR(128) NULL CHECK (length(order_id) <= 128),
  claimed_at     DATETIME NOT NULL,
  synced_at      DATETIME NOT NULL,
  resolved_at    DATETIME NULL,
  release_reason VARCHAR(200) NOT NULL DEFAULT '' CHECK (length(release_reason) <= 200),
  decisions      SMALLINT NULL,
  reopened_at    DATETIME NULL,
  held_until     DATETIME NULL,
  PRIMARY KEY (id),
  CONSTRAINT claims_quantity_positive CHECK (quantity > 0),
  CONSTRAINT claims_seq_positive CHECK (seq > 0)
);
CREATE INDEX IF NOT EXISTS claims_place ON claims (campaign_id, shard, seq);
CREATE INDEX IF NOT EXISTS claims_of_user ON claims (user_id, claimed_at, id);

CREATE TABLE IF NOT EXISTS claim_orders (
  order_id VARCHAR(128) NOT NULL CHECK (length(order_id) <= 128),
  claim_id VARCHAR(64) NOT NULL CHECK (length(claim_id) <= 64),
  reopened TINYINT NULL,
  PRIMARY KEY (order_id, claim_id)
);

CREATE TABLE IF NOT EXISTS hold_extensions (
  claim_id   VARCHAR(64) NOT NULL CHECK (length(claim_id) <= 64),
  key_digest VARCHAR(64) NOT NULL CHECK (length(key_digest) <= 64),
  PRIMARY KEY (claim_id, key_digest)
);

CREATE TABLE IF NOT EXISTS claims_archive (
  id             VARCHAR(64) NOT NULL CHECK (length(id) <= 64),
  campaign_id    VARCHAR(64) NOT NULL CHECK (length(campaign_id) <= 64),
  shard          SMALLINT NOT NULL,
  seq            BIGINT NOT NULL,
  user_id        VARCHAR(128) NOT NULL CHECK (length(user_id) <= 128),
  quantity       INT NOT NULL,
  status         VARCHAR(16) NOT NULL CHECK (length(status) <= 16),
  key_digest     VARCHAR(64) NOT NULL CHECK (length(key_digest) <= 64),
  subjects       VARCHAR(4000) NULL CHECK (length(subjects) <= 4000),
  epoch          INT NOT NULL,
  packet_id      VARCHAR(64) NULL CHECK (length(packet_id) <= 64),
  amount         BIGINT NULL,
  order_id       VARCHAR(128) NULL CHECK (length(order_id) <= 128),
  claimed_at     DATETIME NOT NULL,
  synced_at      DATETIME NOT NULL,
  resolved_at    DATETIME NULL,
  release_reason VARCHAR(200) NOT NULL CHECK (length(release_reason) <= 200),
  decisions      SMALLINT NULL,
  reopened_at    DATETIME NULL,
  held_until     DATETIME NULL,
  archived_at    DATETIME NOT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS claims_archive_place ON claims_archive (campaign_id, shard, seq);

CREATE TABLE IF NOT EXISTS stock_flushes (
  id               VARCHAR(64) NOT NULL CHECK (length(id) <= 64),
  campaign_id      VARCHAR(64) NOT NULL CHECK (length(campaign_id) <= 64),
  shard            SMALLINT NOT NULL DEFAULT 0,
  units            BIGINT NOT NULL,
  claims           BIGINT NOT NULL,
  first_seq        BIGINT NOT NULL,
  last_seq         BIGINT NOT NULL,
  took_ms          BIGINT NOT NULL,
  flushed_at       DATETIME NOT NULL,
  moved            BIGINT NOT NULL DEFAULT 0,
  waiting          TINYINT NULL,
  first_claimed_ms BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS stock_flushes_of_campaign ON stock_flushes (campaign_id, flushed_at);
CREATE INDEX IF NOT EXISTS stock_flushes_waiting ON stock_flushes (waiting);

CREATE TABLE IF NOT EXISTS hold_cursors (
  campaign_id VARCHAR(64) NOT NULL CHECK (length(campaign_id) <= 64),
  shard       SMALLINT NOT NULL,
  seq         BIGINT NOT NULL,
  due_ms      BIGINT NULL,
  PRIMARY KEY (campaign_id, shard)
);
CREATE INDEX IF NOT EXISTS hold_cursors_due ON hold_cursors (due_ms);

CREATE TABLE IF NOT EXISTS hold_dues (
  claim_id VARCHAR(64) NOT NULL CHECK (length(claim_id) <= 64),
  due_ms   BIGINT NOT NULL,
  PRIMARY KEY (claim_id)
);
CREATE INDEX IF NOT EXISTS hold_dues_due ON hold_dues (due_ms);

CREATE TABLE IF NOT EXISTS stock_moves (
  id          VARCHAR(64) NOT NULL CHECK (length(id) <= 64),
  campaign_id VARCHAR(64) NOT NULL CHECK (length(campaign_id) <= 64),
  from_shard  SMALLINT NOT NULL,
  to_shard    SMALLINT NOT NULL,
  units       BIGINT NOT NULL,
  debited_at  DATETIME NOT NULL,
  credited_at DATETIME NULL,
  reload_upto INT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS stock_moves_open ON stock_moves (credited_at, campaign_id);
CREATE INDEX IF NOT EXISTS stock_moves_of_campaign ON stock_moves (campaign_id, from_shard);

CREATE TABLE IF NOT EXISTS packets (
  campaign_id VARCHAR(64) NOT NULL CHECK (length(campaign_id) <= 64),
  id          VARCHAR(64) NOT NULL CHECK (length(id) <= 64),
  position    BIGINT NOT NULL,
  shard       SMALLINT NOT NULL DEFAULT 0,
  amount      BIGINT NOT NULL,
  user_id     VARCHAR(128) NULL CHECK (length(user_id) <= 128),
  claim_id    VARCHAR(64) NULL CHECK (length(claim_id) <= 64),
  release_at  DATETIME NULL,
  returned_at DATETIME NULL,
  created_at  DATETIME NOT NULL,
  PRIMARY KEY (campaign_id, id),
  CONSTRAINT packets_amount_not_negative CHECK (amount >= 0)
);
CREATE UNIQUE INDEX IF NOT EXISTS packets_place ON packets (campaign_id, position);
CREATE UNIQUE INDEX IF NOT EXISTS packets_claim ON packets (claim_id);
CREATE INDEX IF NOT EXISTS packets_of_user ON packets (user_id, campaign_id);

CREATE TABLE IF NOT EXISTS packet_batches (
  campaign_id    VARCHAR(64) NOT NULL CHECK (length(campaign_id) <= 64),
  first_position BIGINT NOT NULL,
  packets        BIGINT NOT NULL,
  amount         BIGINT NOT NULL,
  release_at     DATETIME NULL,
  request_key    VARCHAR(64) NOT NULL CHECK (length(request_key) <= 64),
  digest         VARCHAR(64) NOT NULL CHECK (length(digest) <= 64),
  created_at     DATETIME NOT NULL,
  PRIMARY KEY (campaign_id, first_position)
);
CREATE UNIQUE INDEX IF NOT EXISTS packet_batches_request ON packet_batches (campaign_id, request_key);
CREATE INDEX IF NOT EXISTS packet_batches_digest ON packet_batches (campaign_id, digest);
CREATE INDEX IF NOT EXISTS packet_batches_release ON packet_batches (campaign_id, release_at, packets);

CREATE TABLE IF NOT EXISTS outbox (
  id          VARCHAR(64) NOT NULL CHECK (length(id) <= 64),
  campaign_id VARCHAR(64) NOT NULL CHECK (length(campaign_id) <= 64),
  kind        VARCHAR(16) NOT NULL CHECK (length(kind) <= 16),
  claim_id    VARCHAR(64) NULL CHECK (length(claim_id) <= 64),
  payload     LONGBLOB NOT NULL,
  created_at  DATETIME NOT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS outbox_of_campaign ON outbox (campaign_id);

CREATE TABLE IF NOT EXISTS parked_events (
  id           VARCHAR(64) NOT NULL CHECK (length(id) <= 64),
  campaign_id  VARCHAR(64) NOT NULL CHECK (length(campaign_id) <= 64),
  user_id      VARCHAR(128) NOT NULL DEFAULT '' CHECK (length(user_id) <= 128),
  reason       VARCHAR(500) NOT NULL CHECK (length(reason) <= 500),
  payload      LONGBLOB NOT NULL,
  parked_at    DATETIME NOT NULL,
  discarded_at DATETIME NULL,
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS parked_events_of_campaign ON parked_events (campaign_id);
CREATE INDEX IF NOT EXISTS parked_events_of_user ON parked_events (user_id);

CREATE TABLE IF NOT EXISTS streams (
  partition_no    INT NOT NULL,
  offset_id   VARCHAR(41) NOT NULL DEFAULT '0-0' CHECK (length(offset_id) <= 41),
  offset_event_id VARCHAR(64) NOT NULL DEFAULT '' CHECK (length(offset_event_id) <= 64),
  offset_read BIGINT NOT NULL DEFAULT 0,
  offset_at   DATETIME NULL,
  complete_at DATETIME NOT NULL DEFAULT '1970-01-01 00:00:00.000',
  state       VARCHAR(16) NOT NULL DEFAULT 'ok' CHECK (length(state) <= 16),
  generation  BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (partition_no)
);

CREATE TABLE IF NOT EXISTS stream_positions (
  partition_no INT NOT NULL,
  slot         INT NOT NULL,
  entry_id     VARCHAR(41) NOT NULL CHECK (length(entry_id) <= 41),
  event_id     VARCHAR(64) NOT NULL CHECK (length(event_id) <= 64),
  entries_read BIGINT NOT NULL,
  PRIMARY KEY (partition_no, slot)
);

CREATE TABLE IF NOT EXISTS reconciliations (
  id              VARCHAR(64) NOT NULL CHECK (length(id) <= 64),
  campaign_id     VARCHAR(64) NOT NULL CHECK (length(campaign_id) <= 64),
  redis_remaining BIGINT NULL,
  mysql_remaining BIGINT NOT NULL,
  backlog         BIGINT NULL,
  drift           BIGINT NULL,
  at              DATETIME NOT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS reconciliations_of_campaign ON reconciliations (campaign_id, at);

CREATE TABLE IF NOT EXISTS repairs (
  id           VARCHAR(64) NOT NULL CHECK (length(id) <= 64),
  campaign_id  VARCHAR(64) NOT NULL CHECK (length(campaign_id) <= 64),
  what         VARCHAR(64) NOT NULL CHECK (length(what) <= 64),
  value_before VARCHAR(500) NOT NULL CHECK (length(value_before) <= 500),
  value_after  VARCHAR(500) NOT NULL CHECK (length(value_after) <= 500),
  at           DATETIME NOT NULL,
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS repairs_of_campaign ON repairs (campaign_id, at);

CREATE TABLE IF NOT EXISTS audit_log (
  id          VARCHAR(64) NOT NULL CHECK (length(id) <= 64),
  at          DATETIME NOT NULL,
  actor       VARCHAR(128) NOT NULL CHECK (length(actor) <= 128),
  request_id  VARCHAR(64) NOT NULL CHECK (length(request_id) <= 64),
  action      VARCHAR(64) NOT NULL CHECK (length(action) <= 64),
  campaign_id VARCHAR(64) NOT NULL DEFAULT '' CHECK (length(campaign_id) <= 64),
  `before`    JSON NULL,
  `after`     JSON NULL,
  PRIMARY KEY (id)
);
CREATE INDEX IF NOT EXISTS audit_by_time ON audit_log (at, id);
CREATE INDEX IF NOT EXISTS audit_of_campaign ON audit_log (campaign_id, at, id);

CREATE TABLE IF NOT EXISTS accounts (
  user_id    VARCHAR(128) NOT NULL CHECK (length(user_id) <= 128),
  currency   VARCHAR(3) NOT NULL CHECK (length(currency) <= 3),
  amount     BIGINT NOT NULL,
  entries    BIGINT NOT NULL,
  updated_at DATETIME NOT NULL,
  PRIMARY KEY (user_id, currency)
);

CREATE TABLE IF NOT EXISTS account_entries (
  claim_id    VARCHAR(64) NOT NULL CHECK (length(claim_id) <= 64),
  user_id     VARCHAR(128) NOT NULL CHECK (length(user_id) <= 128),
  campaign_id VARCHAR(64) NOT NULL CHECK (length(campaign_id) <= 64),
  shard       SMALLINT NOT NULL DEFAULT 0,
  seq         BIGINT NULL,
  packet_id   VARCHAR(64) NULL CHECK (length(packet_id) <= 64),
  amount      BIGINT NOT NULL,
  currency    VARCHAR(3) NOT NULL CHECK (length(currency) <= 3),
  claimed_at  DATETIME NOT NULL,
  credited_at DATETIME NOT NULL,
  PRIMARY KEY (claim_id)
);
CREATE UNIQUE INDEX IF NOT EXISTS account_entries_packet ON account_entries (campaign_id, packet_id);
CREATE INDEX IF NOT EXISTS account_entries_of_user ON account_entries (user_id, currency);

CREATE TABLE IF NOT EXISTS settings (
  name  VARCHAR(64) NOT NULL CHECK (length(name) <= 64),
  value VARCHAR(255) NOT NULL CHECK (length(value) <= 255),
  PRIMARY KEY (name)
);

CREATE TABLE IF NOT EXISTS consumer_groups (
  name          VARCHAR(255) NOT NULL CHECK (length(name) <= 255),
  registered_at DATETIME  NOT NULL,
  PRIMARY KEY (name)
);

CREATE TABLE IF NOT EXISTS ledger_events (
  campaign_id VARCHAR(64) NOT NULL CHECK (length(campaign_id) <= 64),
  at          DATETIME NOT NULL,
  id          VARCHAR(64) NOT NULL CHECK (length(id) <= 64),
  type        VARCHAR(32) NOT NULL CHECK (length(type) <= 32),
  claims      BIGINT      NOT NULL,
  units       BIGINT      NOT NULL,
  amount      BIGINT      NOT NULL,
  payload     LONGBLOB    NOT NULL,
  PRIMARY KEY (campaign_id, at, id)
);

INSERT INTO settings (name, value) SELECT 'ledger_upto', '1970-01-01 00:00:00.000'
  WHERE NOT EXISTS (SELECT 1 FROM settings WHERE name = 'ledger_upto');

CREATE TABLE IF NOT EXISTS webhook_events (
  endpoint    VARCHAR(64)  NOT NULL,
  campaign_id VARCHAR(64)  NOT NULL,
  no          BIGINT       NOT NULL,
  event_id    VARCHAR(64)  NOT NULL,
  type        VARCHAR(32)  NOT NULL,
  at          DATETIME  NOT NULL,
  payload     LONGBLOB     NOT NULL,
  created_at  DATETIME  NOT NULL,
  parked_at   DATETIME  NULL,
  reason      VARCHAR(500) NOT NULL DEFAULT '' CHECK (length(reason) <= 500),
  announced   INT          NOT NULL DEFAULT 0,
  PRIMARY KEY (endpoint, campaign_id, no)
);
CREATE UNIQUE INDEX IF NOT EXISTS webhook_events_once ON webhook_events (endpoint, event_id);
CREATE INDEX IF NOT EXISTS webhook_events_parked ON webhook_events (parked_at);
CREATE INDEX IF NOT EXISTS webhook_events_waiting ON webhook_events (endpoint, parked_at, at);

CREATE VIEW IF NOT EXISTS defined_lots AS
SELECT l.id, l.campaign_id, l.shard, d.kind, d.name, d.status, l.partition_no, d.shards, l.total, l.redis_total, l.remaining, l.claimed,
  l.synced_seq, l.sold, l.released_claims, l.lost_claims, l.lost_units, l.given_up_claims, l.given_up_units, d.per_user, d.per_user_per_day, d.limits, d.shard_by, d.time_zone, d.starts_at, d.ends_at,
  CASE WHEN l.shard = 0 THEN d.low_stock_at ELSE 0 END AS low_stock_at, d.currency, d.sender_id, d.hold_for_ms, d.hold_max_ms, d.pause_id, d.public, d.version, d.changes,
  d.created_digest, d.created_at, l.updated_at, l.applied_version, l.untold, l.told_position, l.epoch, l.load_attempts, l.residency,
  l.residency_at, l.generation, l.reload_upto, l.seen_epoch, l.seen_seq, l.seen_units, l.archived_claims, l.archived_units, l.archived_sold,
  l.archived_released,
  d.closed_told_at, d.told_line
FROM lots l JOIN definitions d ON d.campaign_id = l.campaign_id;

CREATE VIEW IF NOT EXISTS campaigns AS
SELECT id, kind, name, status, partition_no, shards, total, redis_total, remaining,
  claimed, synced_seq, sold, released_claims, lost_claims, lost_units, given_up_claims, given_up_units,
  per_user, per_user_per_day, limits, shard_by, time_zone, starts_at, ends_at,
  low_stock_at, currency, sender_id, hold_for_ms, hold_max_ms, pause_id, public, version, changes, created_digest, created_at, updated_at, applied_version, epoch,
  residency, residency_at, generation, archived_claims, archived_units, archived_released, closed_told_at, told_line
FROM defined_lots WHERE shard = 0;

CREATE VIEW IF NOT EXISTS campaign_shards AS
SELECT id, campaign_id, shard, kind, name, status, partition_no, shards, total, total AS granted, redis_total, remaining, claimed, synced_seq,
  sold, released_claims, lost_claims, lost_units, given_up_claims, given_up_units, per_user, per_user_per_day, limits, shard_by, time_zone, starts_at, ends_at, low_stock_at, currency, sender_id, hold_for_ms, hold_max_ms, pause_id,
  version, changes, created_digest, created_at, updated_at, applied_version, epoch, residency,
  residency_at, generation, archived_claims, archived_units, archived_released, closed_told_at, told_line
FROM defined_lots WHERE shard > 0;

CREATE VIEW IF NOT EXISTS stock_watch AS
SELECT c.id AS campaign_id, c.kind, c.status, c.total, c.remaining, c.claimed,
  r.backlog, r.drift, r.at AS compared_at,
  (SELECT f.flushed_at FROM stock_flushes f WHERE f.campaign_id = c.id ORDER BY f.flushed_at DESC LIMIT 1) AS last_flush_at,
  CAST((julianday('now') - julianday((SELECT f.flushed_at FROM stock_flushes f WHERE f.campaign_id = c.id ORDER BY f.flushed_at DESC LIMIT 1))) * 86400 AS INTEGER) AS last_flush_age_seconds,
  (SELECT COALESCE(SUM(f.claims), 0) FROM stock_flushes f WHERE f.waiting = 1 AND f.campaign_id = c.id) AS waiting
FROM campaigns c
LEFT JOIN reconciliations r
  ON r.id = (SELECT x.id FROM reconciliations x WHERE x.campaign_id = c.id ORDER BY x.at DESC, x.id DESC LIMIT 1);
