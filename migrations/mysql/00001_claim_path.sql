-- +goose Up
-- Every text column compares byte for byte: case counts, accents count, trailing spaces count. MySQL calls that collation
-- utf8mb4_0900_bin and MariaDB calls it utf8mb4_nopad_bin; each server reads only its own of the two versioned comments.
-- Every time is UTC. Every money amount is in minor units. No key is AUTO_INCREMENT: rows are keyed by what they are.
CREATE TABLE IF NOT EXISTS campaigns (
  id               VARCHAR(64)  NOT NULL COMMENT 'chosen by the operator; case counts',
  kind             VARCHAR(16)  NOT NULL COMMENT 'coupon or packet',
  name             VARCHAR(200) NOT NULL DEFAULT '',
  status           VARCHAR(16)  NOT NULL COMMENT 'open, paused or closed; closed is for ever',
  `partition`      INT          NOT NULL COMMENT 'which claim stream; follows from the id',
  total            BIGINT       NOT NULL COMMENT 'units to give away',
  per_user         BIGINT       NOT NULL DEFAULT 0 COMMENT 'units a user may hold; 0 is no limit',
  per_user_per_day BIGINT       NOT NULL DEFAULT 0 COMMENT 'units a user may take in a day of time_zone; 0 is no limit',
  time_zone        VARCHAR(64)  NOT NULL COMMENT 'IANA name',
  starts_at        DATETIME(3)  NULL COMMENT 'UTC; NULL is at once',
  ends_at          DATETIME(3)  NULL COMMENT 'UTC; NULL is never',
  low_stock_at     BIGINT       NOT NULL DEFAULT 0 COMMENT 'units; announced when remaining falls to this',
  currency         VARCHAR(3)   NOT NULL DEFAULT '' COMMENT 'ISO 4217',
  sender_id        VARCHAR(128) NOT NULL DEFAULT '' COMMENT 'user who gets back what is left',
  hold_for_ms      BIGINT       NOT NULL DEFAULT 0 COMMENT 'how long a claim may stay unredeemed; 0 is for ever',
  version          BIGINT       NOT NULL DEFAULT 1 COMMENT 'changes of the definition, counted from 1',
  applied_version  BIGINT       NOT NULL DEFAULT 0 COMMENT 'last version that Redis is known to hold',
  epoch            BIGINT       NOT NULL DEFAULT 0 COMMENT 'load into Redis that is in force; 0 is never loaded',
  load_attempts    BIGINT       NOT NULL DEFAULT 0 COMMENT 'loads ever begun; numbers the epochs',
  created_digest   VARCHAR(64)  NOT NULL DEFAULT '' COMMENT 'SHA-256 of the definition as created, to know a repeated creation',
  remaining        BIGINT       NOT NULL COMMENT 'units; never below what Redis says remains',
  claimed          BIGINT       NOT NULL DEFAULT 0 COMMENT 'units of live claims that have their row',
  synced_seq       BIGINT       NOT NULL DEFAULT 0 COMMENT 'accepted claims that have their row',
  created_at       DATETIME(3)  NOT NULL COMMENT 'UTC',
  updated_at       DATETIME(3)  NOT NULL COMMENT 'UTC; of the definition or of the books',
  PRIMARY KEY (id),
  CONSTRAINT campaigns_remaining_not_negative CHECK (remaining >= 0),
  CONSTRAINT campaigns_claimed_not_negative CHECK (claimed >= 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a campaign: its definition and its books';

CREATE TABLE IF NOT EXISTS claims (
  id          VARCHAR(64)  NOT NULL COMMENT 'the claim''s own id, which is also the id of its event',
  campaign_id VARCHAR(64)  NOT NULL,
  shard       INT          NOT NULL DEFAULT 0 COMMENT 'part of a campaign that is spread over several; 0 until one is',
  seq         BIGINT       NOT NULL COMMENT 'from 1, without gaps, per campaign and shard',
  user_id     VARCHAR(128) NOT NULL,
  quantity    BIGINT       NOT NULL COMMENT 'units',
  status      VARCHAR(16)  NOT NULL COMMENT 'claimed, redeemed, released or expired',
  key_digest  VARCHAR(64)  NOT NULL DEFAULT '' COMMENT 'digest of the client''s idempotency key; empty when it sent none',
  epoch       BIGINT       NOT NULL DEFAULT 0 COMMENT 'load of the campaign into Redis that took the claim',
  packet_id   VARCHAR(64)  NULL,
  amount      BIGINT       NULL COMMENT 'minor units of the campaign''s currency',
  order_id    VARCHAR(128) NULL COMMENT 'the order that redeemed it',
  claimed_at  DATETIME(3)  NOT NULL COMMENT 'UTC, by the clock of Redis',
  synced_at   DATETIME(3)  NOT NULL COMMENT 'UTC, when this row was written',
  PRIMARY KEY (id),
  UNIQUE KEY claims_place (campaign_id, shard, seq),
  KEY claims_of_user (user_id, campaign_id),
  CONSTRAINT claims_quantity_positive CHECK (quantity > 0),
  CONSTRAINT claims_seq_positive CHECK (seq > 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row an accepted claim';

CREATE TABLE IF NOT EXISTS packets (
  campaign_id VARCHAR(64)  NOT NULL,
  id          VARCHAR(64)  NOT NULL COMMENT 'chosen by the operator or made by the split; unique in its campaign',
  amount      BIGINT       NOT NULL COMMENT 'minor units of the campaign''s currency',
  user_id     VARCHAR(128) NULL COMMENT 'who took it; NULL until taken',
  claim_id    VARCHAR(64)  NULL COMMENT 'the claim that took it',
  release_at  DATETIME(3)  NULL COMMENT 'UTC; NULL is at once',
  returned_at DATETIME(3)  NULL COMMENT 'UTC, when its amount went back to the sender',
  created_at  DATETIME(3)  NOT NULL COMMENT 'UTC',
  PRIMARY KEY (campaign_id, id),
  UNIQUE KEY packets_claim (claim_id),
  KEY packets_of_user (user_id, campaign_id),
  CONSTRAINT packets_amount_not_negative CHECK (amount >= 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a red packet, written before Redis knows it';

CREATE TABLE IF NOT EXISTS stock_flushes (
  id          VARCHAR(64) NOT NULL COMMENT 'UUIDv7: sorts by time',
  campaign_id VARCHAR(64) NOT NULL,
  units       BIGINT      NOT NULL COMMENT 'units that this flush took from remaining',
  claims      BIGINT      NOT NULL COMMENT 'rows that it put into claims',
  first_seq   BIGINT      NOT NULL COMMENT 'lowest seq among them',
  last_seq    BIGINT      NOT NULL COMMENT 'highest seq among them; holes between are claims of other flushes',
  took_ms     BIGINT      NOT NULL COMMENT 'from the start of the transaction to this row',
  flushed_at  DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  KEY stock_flushes_of_campaign (campaign_id, flushed_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a flush and campaign: the books move by these sums and by nothing else';

CREATE TABLE IF NOT EXISTS reconciliations (
  id              VARCHAR(64) NOT NULL COMMENT 'UUIDv7: sorts by time',
  campaign_id     VARCHAR(64) NOT NULL,
  redis_remaining BIGINT      NULL COMMENT 'units; NULL when Redis did not hold the campaign',
  mysql_remaining BIGINT      NOT NULL COMMENT 'units',
  backlog         BIGINT      NULL COMMENT 'accepted claims without their row yet',
  drift           BIGINT      NULL COMMENT 'units at the common watermark, Redis less MySQL; a lag is no drift',
  at              DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  KEY reconciliations_of_campaign (campaign_id, at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a comparison of Redis and MySQL';

CREATE TABLE IF NOT EXISTS accounts (
  user_id    VARCHAR(128) NOT NULL,
  currency   VARCHAR(3)   NOT NULL COMMENT 'ISO 4217',
  amount     BIGINT       NOT NULL COMMENT 'minor units; the sum of the entries',
  entries    BIGINT       NOT NULL COMMENT 'how many entries that sum has',
  updated_at DATETIME(3)  NOT NULL COMMENT 'UTC',
  PRIMARY KEY (user_id, currency)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='the reference finance service: one row a user and currency';

CREATE TABLE IF NOT EXISTS account_entries (
  claim_id    VARCHAR(64)  NOT NULL COMMENT 'one entry a claim, however often its event comes',
  user_id     VARCHAR(128) NOT NULL,
  campaign_id VARCHAR(64)  NOT NULL,
  packet_id   VARCHAR(64)  NULL,
  amount      BIGINT       NOT NULL COMMENT 'minor units',
  currency    VARCHAR(3)   NOT NULL COMMENT 'ISO 4217',
  claimed_at  DATETIME(3)  NOT NULL COMMENT 'UTC',
  credited_at DATETIME(3)  NOT NULL COMMENT 'UTC',
  PRIMARY KEY (claim_id),
  KEY account_entries_of_user (user_id, currency)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='the reference finance service: one row a credited claim';

CREATE TABLE IF NOT EXISTS parked_events (
  id          VARCHAR(64)  NOT NULL COMMENT 'id of the event, or the SHA-256 of its payload when it has no usable id',
  campaign_id VARCHAR(64)  NOT NULL COMMENT 'as the event says; there may be no such campaign',
  reason      VARCHAR(500) NOT NULL COMMENT 'why it could not be written',
  payload     LONGBLOB     NOT NULL COMMENT 'the event as it came',
  parked_at   DATETIME(3)  NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  KEY parked_events_of_campaign (campaign_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='events that could never be written, kept for people; each is a claim missing from the books';

CREATE TABLE IF NOT EXISTS settings (
  name  VARCHAR(64)  NOT NULL,
  value VARCHAR(255) NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='what is fixed once data exists';

CREATE OR REPLACE VIEW stock_watch AS
SELECT c.id AS campaign_id, c.kind, c.status, c.total, c.remaining, c.claimed,
  r.backlog, r.drift, r.at AS compared_at,
  f.last_flush_at, TIMESTAMPDIFF(SECOND, f.last_flush_at, UTC_TIMESTAMP(3)) AS last_flush_age_seconds
FROM campaigns c
LEFT JOIN (SELECT campaign_id, MAX(flushed_at) AS last_flush_at FROM stock_flushes GROUP BY campaign_id) f
  ON f.campaign_id = c.id
LEFT JOIN reconciliations r
  ON r.id = (SELECT x.id FROM reconciliations x WHERE x.campaign_id = c.id ORDER BY x.at DESC, x.id DESC LIMIT 1);
