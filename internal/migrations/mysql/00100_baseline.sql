-- +goose Up
-- The schema that every later migration builds on. Each statement may run twice: DDL is not transactional on MySQL, so a migration that
-- was interrupted is run again from its first line.
--
-- Every text column compares byte for byte: case counts, accents count, trailing spaces count. MySQL calls that collation
-- utf8mb4_0900_bin and MariaDB calls it utf8mb4_nopad_bin; each server reads only its own of the two versioned comments.
-- Every time is UTC. Every money amount is in minor units. No key is AUTO_INCREMENT: rows are keyed by what they are.
--
-- What the operator decided of a campaign. Its stock is in lots.
CREATE TABLE IF NOT EXISTS definitions (
  campaign_id      VARCHAR(64) NOT NULL COMMENT 'chosen by the operator, case counts',
  kind             VARCHAR(16) NOT NULL COMMENT 'coupon or packet',
  name             VARCHAR(200) NOT NULL DEFAULT '' COMMENT 'for people',
  status           VARCHAR(16) NOT NULL COMMENT 'open, paused or closed; closed is for ever',
  shards           INT NOT NULL DEFAULT 1 COMMENT 'over how many shards the campaign is spread',
  per_user         BIGINT NOT NULL DEFAULT 0 COMMENT 'units a user may hold; 0 is no limit',
  per_user_per_day BIGINT NOT NULL DEFAULT 0 COMMENT 'units a user may take in a day of time_zone; 0 is no limit',
  limits           VARCHAR(2000) NOT NULL DEFAULT '' COMMENT 'the other limits, JSON; empty is none',
  shard_by         VARCHAR(32) NOT NULL DEFAULT '' COMMENT 'subject whose value decides about the shard of a claim; empty is its user',
  time_zone        VARCHAR(64) NOT NULL COMMENT 'IANA name',
  starts_at        DATETIME(3) NULL COMMENT 'UTC; NULL is at once',
  ends_at          DATETIME(3) NULL COMMENT 'UTC; NULL is never',
  low_stock_at     BIGINT NOT NULL DEFAULT 0 COMMENT 'units; announced when remaining falls to this',
  currency         VARCHAR(3) NOT NULL DEFAULT '' COMMENT 'ISO 4217',
  sender_id        VARCHAR(128) NOT NULL DEFAULT '' COMMENT 'user who gets back what is left',
  hold_for_ms      BIGINT NOT NULL DEFAULT 0 COMMENT 'how long a claim may stay unredeemed; 0 is for ever',
  hold_max_ms      BIGINT NOT NULL DEFAULT 0 COMMENT 'how long it may with all extensions; 0 where there are no holds',
  pause_id         VARCHAR(36) NULL COMMENT 'the last pause that Redis was told of while MySQL was away; NULL is none',
  public           VARCHAR(8) NOT NULL DEFAULT '' COMMENT 'what anybody may read of it: level, count, or nothing if empty',
  version          BIGINT NOT NULL DEFAULT 1 COMMENT 'identifies the last change: 1, then milliseconds since 1970, rising',
  changes          BIGINT NOT NULL DEFAULT 1 COMMENT 'definitions that there were, counted from 1',
  told_line        INT NOT NULL DEFAULT 0 COMMENT 'of a campaign of several shards, which line of its stock was told: 1 low, 2 sold out',
  created_digest   VARCHAR(64) NOT NULL DEFAULT '' COMMENT 'SHA-256 of the definition as created, to know a repeated creation',
  created_at       DATETIME(3) NOT NULL COMMENT 'UTC',
  closed_told_at   DATETIME(3) NULL COMMENT 'UTC, when all was settled and campaign.closed written; NULL until then',
  PRIMARY KEY (campaign_id),
  KEY definitions_to_end (status, closed_told_at),
  KEY definitions_of_shards (shards),
  KEY definitions_public (public, version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a campaign: what its operator decided';

-- A lot is stock that Redis keeps in one place: a campaign of one shard is one lot, one of several shards is a lot for each shard. Lot 0 of
-- a campaign of several shards has the sums of its lots, and the total that is dealt out to them.
CREATE TABLE IF NOT EXISTS lots (
  campaign_id       VARCHAR(64) NOT NULL COMMENT 'as in definitions',
  shard             SMALLINT NOT NULL COMMENT '0: the campaign; shards follow from 1',
  id                VARCHAR(64) GENERATED ALWAYS AS (CASE WHEN shard = 0 THEN campaign_id ELSE CONCAT(campaign_id, '#', shard) END) STORED COMMENT 'one name of the lot: the campaign, or <campaign>#<shard>',
  partition_no      INT NOT NULL COMMENT 'which claim stream; follows from the id',
  total             BIGINT NOT NULL COMMENT 'units of this lot; in lot 0 of the campaign. Below 0, a shard has given units that it is yet to get',
  redis_total       BIGINT NOT NULL DEFAULT 0 COMMENT 'units that Redis may still sell by, while a lower total is on its way to it; else 0',
  claimed           BIGINT NOT NULL DEFAULT 0 COMMENT 'units of live claims that have their row: of this lot, in lot 0 of all lots of the campaign',
  synced_seq        BIGINT NOT NULL DEFAULT 0 COMMENT 'accepted claims that have their row: of this lot, in lot 0 of all lots of the campaign',
  released_claims   BIGINT NOT NULL DEFAULT 0 COMMENT 'claims that were released or expired, ever',
  sold              BIGINT NOT NULL DEFAULT 0 COMMENT 'units of claims that have their row, released or not: it never falls',
  lost_claims       BIGINT NOT NULL DEFAULT 0 COMMENT 'claims that Redis accepted and lost: no row has them',
  lost_units        BIGINT NOT NULL DEFAULT 0 COMMENT 'units of these: not for sale',
  given_up_claims   BIGINT NOT NULL DEFAULT 0 COMMENT 'claims that were lost and that an operator gave up',
  given_up_units    BIGINT NOT NULL DEFAULT 0 COMMENT 'units of these: for sale again',
  remaining         BIGINT GENERATED ALWAYS AS (GREATEST(GREATEST(total, redis_total) - claimed - lost_units, 0)) VIRTUAL COMMENT 'units; of the campaign in lot 0, as Redis had them at the offset of the claim stream; of a shard it promises nothing while units move',
  applied_version   BIGINT NOT NULL DEFAULT 0 COMMENT 'last version of the definition that Redis is known to hold',
  untold            TINYINT NULL COMMENT '1: the claim stream does not have the newest definition or packets yet; NULL: it has them',
  told_position     BIGINT NOT NULL DEFAULT 0 COMMENT 'the claim stream has the packets of the lot up to this position',
  epoch             INT NOT NULL DEFAULT 0 COMMENT 'load into Redis that is in force; 0 is never loaded',
  load_attempts     INT NOT NULL DEFAULT 0 COMMENT 'loads ever begun; numbers the epochs',
  residency         VARCHAR(16) NOT NULL DEFAULT 'none' COMMENT 'where the stock is: none (never in Redis), resident, evicted',
  residency_at      DATETIME(3) NULL COMMENT 'UTC, since when it is where it is',
  generation        BIGINT NOT NULL DEFAULT 0 COMMENT 'of the partition, in streams, when the lot was loaded',
  reload_upto       INT NOT NULL DEFAULT 0 COMMENT 'loads up to this epoch were made of rows that MySQL lacked when it applied them: such a lot is loaded again',
  loader            VARCHAR(64) NOT NULL DEFAULT '' COMMENT 'who began the last load',
  seen_epoch        INT NOT NULL DEFAULT 0 COMMENT 'highest epoch that processes saw in Redis',
  seen_seq          BIGINT NOT NULL DEFAULT 0 COMMENT 'highest seq that they saw',
  seen_units        BIGINT NOT NULL DEFAULT 0 COMMENT 'most units that they saw sold, ever',
  archived_claims   BIGINT NOT NULL DEFAULT 0 COMMENT 'claims whose rows were moved away; synced_seq counts them still',
  archived_units    BIGINT NOT NULL DEFAULT 0 COMMENT 'units of those that were live; claimed counts them still',
  archived_sold     BIGINT NOT NULL DEFAULT 0 COMMENT 'units of all of them; sold counts them still',
  archived_released BIGINT NOT NULL DEFAULT 0 COMMENT 'how many of them were released or expired; released_claims counts them still',
  updated_at        DATETIME(3) NOT NULL COMMENT 'UTC; of the definition or of the counters',
  PRIMARY KEY (campaign_id, shard),
  UNIQUE KEY lots_id (id),
  KEY lots_of_residency (residency, campaign_id, shard),
  KEY lots_untold (untold),
  CONSTRAINT lots_total_not_negative CHECK (total >= 0 OR shard > 0),
  CONSTRAINT lots_claimed_not_negative CHECK (claimed >= 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a lot: stock, counters, and where it is in Redis. Read campaigns and campaign_shards';

CREATE TABLE IF NOT EXISTS claims (
  id             VARCHAR(64) NOT NULL COMMENT 'the claim''s own id, which is also the id of its event',
  campaign_id    VARCHAR(64) NOT NULL COMMENT 'as in definitions',
  shard          SMALLINT NOT NULL DEFAULT 0 COMMENT 'of the campaign, from 1; 0 in a campaign of one shard',
  seq            BIGINT NOT NULL COMMENT 'from 1 per campaign and shard, without gaps or repeats unless Redis lost data',
  user_id        VARCHAR(128) NOT NULL COMMENT 'as the storefront names the user',
  quantity       INT NOT NULL COMMENT 'units',
  status         ENUM('claimed','redeemed','released','expired') NOT NULL COMMENT 'what became of the claim',
  key_digest     VARCHAR(64) NOT NULL DEFAULT '' COMMENT 'digest of the client''s idempotency key; empty when it sent none',
  subjects       VARCHAR(4000) NULL COMMENT 'what limits count the claim under beside its user, JSON; NULL is nothing',
  epoch          INT NOT NULL DEFAULT 0 COMMENT 'load of the campaign into Redis that took the claim',
  packet_id      VARCHAR(64) NULL COMMENT 'packet of the claim; NULL in a coupon campaign',
  amount         BIGINT NULL COMMENT 'minor units of the campaign''s currency',
  order_id       VARCHAR(128) NULL COMMENT 'the order that redeemed it; see claim_orders',
  claimed_at     DATETIME(3) NOT NULL COMMENT 'UTC, by the clock of Redis',
  synced_at      DATETIME(3) NOT NULL COMMENT 'UTC, when this row was written',
  resolved_at    DATETIME(3) NULL COMMENT 'UTC, when it was redeemed, released or expired; NULL until then',
  release_reason VARCHAR(200) NOT NULL DEFAULT '' COMMENT 'why it was released, in the words of who did',
  decisions      SMALLINT NULL COMMENT 'how often it was decided what becomes of it; NULL is never',
  reopened_at    DATETIME(3) NULL COMMENT 'UTC, when a redeem was taken back, and its hold began anew; NULL is never',
  held_until     DATETIME(3) NULL COMMENT 'UTC, when its hold ends, if it was extended',
  PRIMARY KEY (id),
  KEY claims_place (campaign_id, shard, seq),
  KEY claims_of_user (user_id, claimed_at, id),
  CONSTRAINT claims_quantity_positive CHECK (quantity > 0),
  CONSTRAINT claims_seq_positive CHECK (seq > 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row an accepted claim';

CREATE TABLE IF NOT EXISTS claim_orders (
  order_id VARCHAR(128) NOT NULL COMMENT 'as in claims',
  claim_id VARCHAR(64) NOT NULL COMMENT 'that the order redeemed',
  reopened TINYINT NULL COMMENT '1: that was taken back; NULL: it was not',
  PRIMARY KEY (order_id, claim_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a redeemed claim: the claims of an order';

CREATE TABLE IF NOT EXISTS hold_extensions (
  claim_id   VARCHAR(64) NOT NULL COMMENT 'as in claims',
  key_digest VARCHAR(64) NOT NULL COMMENT 'digest of the idempotency key of the request',
  PRIMARY KEY (claim_id, key_digest)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row an extension of a hold that has a key, to know a repeated request';

CREATE TABLE IF NOT EXISTS claims_archive (
  id             VARCHAR(64) NOT NULL COMMENT 'as in claims',
  campaign_id    VARCHAR(64) NOT NULL COMMENT 'as in claims',
  shard          SMALLINT NOT NULL COMMENT 'as in claims',
  seq            BIGINT NOT NULL COMMENT 'as in claims',
  user_id        VARCHAR(128) NOT NULL COMMENT 'as in claims',
  quantity       INT NOT NULL COMMENT 'as in claims',
  status         ENUM('claimed','redeemed','released','expired') NOT NULL COMMENT 'as in claims',
  key_digest     VARCHAR(64) NOT NULL COMMENT 'as in claims',
  subjects       VARCHAR(4000) NULL COMMENT 'as in claims',
  epoch          INT NOT NULL COMMENT 'as in claims',
  packet_id      VARCHAR(64) NULL COMMENT 'as in claims',
  amount         BIGINT NULL COMMENT 'as in claims',
  order_id       VARCHAR(128) NULL COMMENT 'as in claims',
  claimed_at     DATETIME(3) NOT NULL COMMENT 'as in claims',
  synced_at      DATETIME(3) NOT NULL COMMENT 'as in claims',
  resolved_at    DATETIME(3) NULL COMMENT 'as in claims',
  release_reason VARCHAR(200) NOT NULL COMMENT 'as in claims',
  decisions      SMALLINT NULL COMMENT 'as in claims',
  reopened_at    DATETIME(3) NULL COMMENT 'as in claims',
  held_until     DATETIME(3) NULL COMMENT 'as in claims',
  archived_at    DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  KEY claims_archive_place (campaign_id, shard, seq)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='claims of closed campaigns that dibs archive moved here; the ledger reads both tables';

CREATE TABLE IF NOT EXISTS stock_flushes (
  id               VARCHAR(64) NOT NULL COMMENT 'UUIDv7: sorts by time',
  campaign_id      VARCHAR(64) NOT NULL COMMENT 'as in definitions',
  shard            SMALLINT NOT NULL DEFAULT 0 COMMENT 'shard of the campaign, from 1; 0 in a campaign of one shard',
  units            BIGINT NOT NULL COMMENT 'units that this flush took from remaining',
  claims           BIGINT NOT NULL COMMENT 'rows that it put into claims',
  first_seq        BIGINT NOT NULL COMMENT 'lowest seq among them',
  last_seq         BIGINT NOT NULL COMMENT 'highest seq among them; holes between are claims of other flushes',
  took_ms          BIGINT NOT NULL COMMENT 'from the start of the transaction to this row',
  flushed_at       DATETIME(3) NOT NULL COMMENT 'UTC',
  moved            BIGINT NOT NULL DEFAULT 0 COMMENT 'units that the shard has more by moves from and to other shards',
  waiting          TINYINT NULL COMMENT '1: the counters of the campaign lack this row yet, as another transaction locked them or MySQL refused the change; NULL: they have it',
  first_claimed_ms BIGINT NOT NULL DEFAULT 0 COMMENT 'when the earliest of these claims was made, milliseconds since 1970 by the clock of Redis',
  PRIMARY KEY (id),
  KEY stock_flushes_of_campaign (campaign_id, flushed_at),
  KEY stock_flushes_waiting (waiting)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a flush and lot: what it added to the counters of the lot';

CREATE TABLE IF NOT EXISTS hold_cursors (
  campaign_id VARCHAR(64) NOT NULL COMMENT 'as in definitions',
  shard       SMALLINT NOT NULL COMMENT 'as in lots',
  seq         BIGINT NOT NULL COMMENT 'the holds of claims up to this seq have ended, or have a row in hold_dues',
  due_ms      BIGINT NULL COMMENT 'when the next hold ends, milliseconds since 1970 by the clock of Redis; NULL: no claim is behind seq',
  PRIMARY KEY (campaign_id, shard),
  KEY hold_cursors_due (due_ms)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a lot with holds: how far its claims have been gone over';

CREATE TABLE IF NOT EXISTS hold_dues (
  claim_id VARCHAR(64) NOT NULL COMMENT 'a claim behind which the cursor of its lot has gone',
  due_ms   BIGINT NOT NULL COMMENT 'when its hold ends, milliseconds since 1970 by the clock of Redis',
  PRIMARY KEY (claim_id),
  KEY hold_dues_due (due_ms)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a claim whose hold ends at a time of its own';

CREATE TABLE IF NOT EXISTS stock_moves (
  id          VARCHAR(64) NOT NULL COMMENT 'of the move, and of its debit',
  campaign_id VARCHAR(64) NOT NULL COMMENT 'as in definitions',
  from_shard  SMALLINT NOT NULL COMMENT 'which gave the units; 0: the total of the campaign was raised',
  to_shard    SMALLINT NOT NULL COMMENT 'which gets the units; 0: the total of the campaign was lowered',
  units       BIGINT NOT NULL COMMENT 'units',
  debited_at  DATETIME(3) NOT NULL COMMENT 'UTC, when they left from_shard',
  credited_at DATETIME(3) NULL COMMENT 'UTC, when to_shard got them; NULL: they are on their way',
  reload_upto INT NULL COMMENT 'from_shard is loaded again if its epoch is no higher: only a credit proves that the units left it; NULL: its debit came first',
  PRIMARY KEY (id),
  KEY stock_moves_open (credited_at, campaign_id),
  KEY stock_moves_of_campaign (campaign_id, from_shard)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a move of units between shards of a campaign';

CREATE TABLE IF NOT EXISTS packets (
  campaign_id VARCHAR(64) NOT NULL COMMENT 'as in definitions',
  id          VARCHAR(64) NOT NULL COMMENT 'chosen by the operator or made by the split; unique in its campaign',
  position    BIGINT NOT NULL COMMENT 'from 1 per campaign, without gaps unless MySQL was restored; Redis is told of packets in this order',
  shard       SMALLINT NOT NULL DEFAULT 0 COMMENT 'which gives it away; 0 in a campaign of one shard',
  amount      BIGINT NOT NULL COMMENT 'minor units of the campaign''s currency',
  user_id     VARCHAR(128) NULL COMMENT 'who took it; NULL until taken',
  claim_id    VARCHAR(64) NULL COMMENT 'the claim that took it',
  release_at  DATETIME(3) NULL COMMENT 'UTC; NULL is at once',
  returned_at DATETIME(3) NULL COMMENT 'UTC, when its amount returned to the sender',
  created_at  DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (campaign_id, id),
  UNIQUE KEY packets_place (campaign_id, position),
  UNIQUE KEY packets_claim (claim_id),
  KEY packets_of_user (user_id, campaign_id),
  CONSTRAINT packets_amount_not_negative CHECK (amount >= 0)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a red packet, written before Redis knows it';

CREATE TABLE IF NOT EXISTS packet_batches (
  campaign_id    VARCHAR(64) NOT NULL COMMENT 'as in definitions',
  first_position BIGINT NOT NULL COMMENT 'of its packets; the others follow without gaps',
  packets        BIGINT NOT NULL COMMENT 'how many',
  amount         BIGINT NOT NULL COMMENT 'their sum, minor units of the campaign''s currency',
  release_at     DATETIME(3) NULL COMMENT 'UTC; NULL is at once',
  request_key    VARCHAR(64) NOT NULL COMMENT 'digest of the client''s idempotency key, or of the list; else made for this request',
  digest         VARCHAR(64) NOT NULL COMMENT 'SHA-256 of what was asked for, to know a repeated request',
  created_at     DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (campaign_id, first_position),
  UNIQUE KEY packet_batches_request (campaign_id, request_key),
  KEY packet_batches_digest (campaign_id, digest),
  KEY packet_batches_release (campaign_id, release_at, packets)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a request that added packets';

CREATE TABLE IF NOT EXISTS outbox (
  id          VARCHAR(64) NOT NULL COMMENT 'UUIDv7: sorts by time; the id of the event, too',
  campaign_id VARCHAR(64) NOT NULL COMMENT 'of the lot, as lots.id',
  kind        VARCHAR(16) NOT NULL COMMENT 'release: gives quota back to Redis and tells the event; event: tells it only',
  claim_id    VARCHAR(64) NULL COMMENT 'the claim that it is about',
  payload     LONGBLOB NOT NULL COMMENT 'the event as it goes into the claim stream, JSON',
  created_at  DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  KEY outbox_of_campaign (campaign_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a thing that Redis must be told, written with what caused it; gone once Redis has it';

CREATE TABLE IF NOT EXISTS parked_events (
  id           VARCHAR(64) NOT NULL COMMENT 'id of the event, or the SHA-256 of its payload when it has no usable id',
  campaign_id  VARCHAR(64) NOT NULL COMMENT 'as the event says; there may be no such campaign',
  user_id      VARCHAR(128) NOT NULL DEFAULT '' COMMENT 'as the event says; empty when it says none',
  reason       VARCHAR(500) NOT NULL COMMENT 'why it could not be written',
  payload      LONGBLOB NOT NULL COMMENT 'the event as it came',
  parked_at    DATETIME(3) NOT NULL COMMENT 'UTC',
  discarded_at DATETIME(3) NULL COMMENT 'UTC, when someone gave it up; NULL: what it claims still counts as claimed',
  PRIMARY KEY (id),
  KEY parked_events_of_campaign (campaign_id),
  KEY parked_events_of_user (user_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='events that could never be written, kept for people; each is a claim missing from the books';

CREATE TABLE IF NOT EXISTS streams (
  partition_no    INT NOT NULL COMMENT 'which claim stream',
  offset_id   VARCHAR(41) NOT NULL DEFAULT '0-0' COMMENT 'entry of the stream that was applied last, with all before it; 0-0 is none',
  offset_event_id VARCHAR(64) NOT NULL DEFAULT '' COMMENT 'event of that entry: Redis may give an entry id again after it lost the entry',
  offset_read BIGINT NOT NULL DEFAULT 0 COMMENT 'entries up to that one since the stream began',
  offset_at   DATETIME(3) NULL COMMENT 'UTC, when the offset moved last',
  complete_at DATETIME(3) NOT NULL DEFAULT '1970-01-01 00:00:00.000' COMMENT 'UTC, by the clock of Redis: every claim that was made before has its row or is parked',
  state       VARCHAR(16) NOT NULL DEFAULT 'ok' COMMENT 'ok, recovering (Redis lost data: what it has is read first), gap (this database is older than the stream begins)',
  generation  BIGINT NOT NULL DEFAULT 0 COMMENT 'how often Redis lost data of the partition',
  PRIMARY KEY (partition_no)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a claim stream: how far it is applied here';

CREATE TABLE IF NOT EXISTS stream_positions (
  partition_no INT NOT NULL COMMENT 'which claim stream',
  slot         INT NOT NULL COMMENT 'second of the flush, modulo 100',
  entry_id     VARCHAR(41) NOT NULL COMMENT 'as streams.offset_id at that moment',
  event_id     VARCHAR(64) NOT NULL COMMENT 'as streams.offset_event_id at that moment',
  entries_read BIGINT NOT NULL COMMENT 'as streams.offset_read at that moment',
  PRIMARY KEY (partition_no, slot)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='where the offset of a stream was, a position a second for a hundred seconds: after Redis lost entries, the stream is read from the last one that it has';

CREATE TABLE IF NOT EXISTS reconciliations (
  id              VARCHAR(64) NOT NULL COMMENT 'UUIDv7: sorts by time',
  campaign_id     VARCHAR(64) NOT NULL COMMENT 'as in definitions',
  redis_remaining BIGINT NULL COMMENT 'units; NULL when Redis did not hold the campaign',
  mysql_remaining BIGINT NOT NULL COMMENT 'units',
  backlog         BIGINT NULL COMMENT 'accepted claims without their row yet',
  drift           BIGINT NULL COMMENT 'units at the common watermark, Redis less MySQL; a lag is no drift',
  at              DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  KEY reconciliations_of_campaign (campaign_id, at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a comparison of Redis and MySQL';

CREATE TABLE IF NOT EXISTS repairs (
  id           VARCHAR(64) NOT NULL COMMENT 'UUIDv7: sorts by time',
  campaign_id  VARCHAR(64) NOT NULL COMMENT 'of the lot, as lots.id',
  what         VARCHAR(64) NOT NULL COMMENT 'which part of the books was put right: claims, campaigns or redis',
  value_before VARCHAR(500) NOT NULL COMMENT 'what was there',
  value_after  VARCHAR(500) NOT NULL COMMENT 'what is there now, and by what evidence',
  at           DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  KEY repairs_of_campaign (campaign_id, at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a change that a repair made';

CREATE TABLE IF NOT EXISTS audit_log (
  id          VARCHAR(64) NOT NULL COMMENT 'UUIDv7: sorts by time',
  at          DATETIME(3) NOT NULL COMMENT 'UTC',
  actor       VARCHAR(128) NOT NULL COMMENT 'name of the token, sub of the JWT, or cli: and the user of the command; empty for a token that is no one''s',
  request_id  VARCHAR(64) NOT NULL COMMENT 'X-Request-Id; empty for a command',
  action      VARCHAR(64) NOT NULL COMMENT 'such as campaign.changed',
  campaign_id VARCHAR(64) NOT NULL DEFAULT '' COMMENT 'empty when it is about none',
  `before`    JSON NULL COMMENT 'what was there, as far as it changed',
  `after`     JSON NULL COMMENT 'what is there now, as far as it changed',
  PRIMARY KEY (id),
  KEY audit_by_time (at, id),
  KEY audit_of_campaign (campaign_id, at, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a change that someone made; nothing works by it, and only a DBA deletes from it';

CREATE TABLE IF NOT EXISTS accounts (
  user_id    VARCHAR(128) NOT NULL COMMENT 'as the storefront names the user',
  currency   VARCHAR(3) NOT NULL COMMENT 'ISO 4217',
  amount     BIGINT NOT NULL COMMENT 'minor units; the sum of the entries',
  entries    BIGINT NOT NULL COMMENT 'how many entries that sum has',
  updated_at DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (user_id, currency)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='the reference finance service: one row a user and currency';

CREATE TABLE IF NOT EXISTS account_entries (
  claim_id    VARCHAR(64) NOT NULL COMMENT 'one entry a claim, however often its event comes',
  user_id     VARCHAR(128) NOT NULL COMMENT 'as the storefront names the user',
  campaign_id VARCHAR(64) NOT NULL COMMENT 'as in definitions',
  shard       SMALLINT NOT NULL DEFAULT 0 COMMENT 'of the campaign, from 1, in which seq counts; 0 in a campaign of one shard',
  seq         BIGINT NULL COMMENT 'of the claim in its campaign and shard; NULL: it is not known',
  packet_id   VARCHAR(64) NULL COMMENT 'packet of the claim; NULL in a coupon campaign',
  amount      BIGINT NOT NULL COMMENT 'minor units',
  currency    VARCHAR(3) NOT NULL COMMENT 'ISO 4217',
  claimed_at  DATETIME(3) NOT NULL COMMENT 'UTC',
  credited_at DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (claim_id),
  UNIQUE KEY account_entries_packet (campaign_id, packet_id),
  KEY account_entries_of_user (user_id, currency)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='the reference finance service: one row a credited claim';

CREATE TABLE IF NOT EXISTS settings (
  name  VARCHAR(64) NOT NULL COMMENT 'which setting',
  value VARCHAR(255) NOT NULL COMMENT 'what it is',
  PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='what is fixed once data exists';

-- The consumer groups whose unread events are kept. The claim streams have the groups themselves; this is the list by which the syncer
-- creates a group again that Redis lost.
CREATE TABLE IF NOT EXISTS consumer_groups (
  name          VARCHAR(255) NOT NULL COMMENT 'as in XGROUP CREATE',
  registered_at DATETIME(3)  NOT NULL COMMENT 'UTC',
  PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a registered consumer group: nothing that it has not acknowledged is trimmed';

-- What the ledger has beside accepted claims, which it reads from claims. Rows are written with what they tell of and never changed.
CREATE TABLE IF NOT EXISTS ledger_events (
  campaign_id VARCHAR(64) NOT NULL COMMENT 'as in definitions',
  at          DATETIME(3) NOT NULL COMMENT 'UTC, of the event, or when it was booked, if what was before was read already',
  id          VARCHAR(64) NOT NULL COMMENT 'of the event',
  type        VARCHAR(32) NOT NULL COMMENT 'claim.redeemed, claim.released, claims.given_up or campaign.closed',
  claims      BIGINT      NOT NULL COMMENT 'how many claims it is about',
  units       BIGINT      NOT NULL COMMENT 'of these claims, as far as they are known',
  amount      BIGINT      NOT NULL COMMENT 'minor units of the campaign''s currency: given up, or returned to the sender',
  payload     LONGBLOB    NOT NULL COMMENT 'the event as it goes into the claim stream, JSON',
  PRIMARY KEY (campaign_id, at, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row an event that was decided here: what became of claims';

-- See ledger.Time.
INSERT INTO settings (name, value) SELECT 'ledger_upto', '1970-01-01 00:00:00.000' FROM DUAL
  WHERE NOT EXISTS (SELECT 1 FROM settings WHERE name = 'ledger_upto');

-- Events that wait for an endpoint that does not take them, and those that were given up.
CREATE TABLE IF NOT EXISTS webhook_events (
  endpoint    VARCHAR(64)  NOT NULL COMMENT 'its name in the endpoints file',
  campaign_id VARCHAR(64)  NOT NULL COMMENT 'as in definitions',
  no          BIGINT       NOT NULL COMMENT 'the order of delivery within endpoint and campaign; microseconds since 1970 when the event was read',
  event_id    VARCHAR(64)  NOT NULL COMMENT 'the webhook-id of its deliveries',
  type        VARCHAR(32)  NOT NULL COMMENT 'of the event',
  at          DATETIME(3)  NOT NULL COMMENT 'UTC, of the event',
  payload     LONGBLOB     NOT NULL COMMENT 'the event as it stands in the claim stream, JSON',
  created_at  DATETIME(3)  NOT NULL COMMENT 'UTC',
  parked_at   DATETIME(3)  NULL COMMENT 'UTC, when it was given up; NULL: it is still tried',
  reason      VARCHAR(500) NOT NULL DEFAULT '' COMMENT 'why it was given up',
  announced   INT          NOT NULL DEFAULT 0 COMMENT '1: a later delivery has told the endpoint that it is missing',
  PRIMARY KEY (endpoint, campaign_id, no),
  UNIQUE KEY webhook_events_once (endpoint, event_id),
  KEY webhook_events_parked (parked_at),
  KEY webhook_events_waiting (endpoint, parked_at, at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row an event that an endpoint has not taken';

-- Lots with the definition of their campaign. low_stock_at is the campaign's: no shard announces anything.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW defined_lots AS
SELECT l.id, l.campaign_id, l.shard, d.kind, d.name, d.status, l.partition_no, d.shards, l.total, l.redis_total, l.remaining, l.claimed,
  l.synced_seq, l.sold, l.released_claims, l.lost_claims, l.lost_units, l.given_up_claims, l.given_up_units, d.per_user, d.per_user_per_day, d.limits, d.shard_by, d.time_zone, d.starts_at, d.ends_at,
  CASE WHEN l.shard = 0 THEN d.low_stock_at ELSE 0 END AS low_stock_at, d.currency, d.sender_id, d.hold_for_ms, d.hold_max_ms, d.pause_id, d.public, d.version, d.changes,
  d.created_digest, d.created_at, l.updated_at, l.applied_version, l.untold, l.told_position, l.epoch, l.load_attempts, l.residency,
  l.residency_at, l.generation, l.reload_upto, l.seen_epoch, l.seen_seq, l.seen_units, l.archived_claims, l.archived_units, l.archived_sold,
  l.archived_released,
  d.closed_told_at, d.told_line
FROM lots l JOIN definitions d ON d.campaign_id = l.campaign_id;

-- A campaign as its operator sees it: of all its lots together.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW campaigns AS
SELECT id, kind, name, status, partition_no, shards, total, redis_total, remaining,
  claimed, synced_seq, sold, released_claims, lost_claims, lost_units, given_up_claims, given_up_units,
  per_user, per_user_per_day, limits, shard_by, time_zone, starts_at, ends_at,
  low_stock_at, currency, sender_id, hold_for_ms, hold_max_ms, pause_id, public, version, changes, created_digest, created_at, updated_at, applied_version, epoch,
  residency, residency_at, generation, archived_claims, archived_units, archived_released, closed_told_at, told_line
FROM defined_lots WHERE shard = 0;

-- The shards of campaigns that are spread over several.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW campaign_shards AS
SELECT id, campaign_id, shard, kind, name, status, partition_no, shards, total, total AS granted, redis_total, remaining, claimed, synced_seq,
  sold, released_claims, lost_claims, lost_units, given_up_claims, given_up_units, per_user, per_user_per_day, limits, shard_by, time_zone, starts_at, ends_at, low_stock_at, currency, sender_id, hold_for_ms, hold_max_ms, pause_id,
  version, changes, created_digest, created_at, updated_at, applied_version, epoch, residency,
  residency_at, generation, archived_claims, archived_units, archived_released, closed_told_at, told_line
FROM defined_lots WHERE shard > 0;

-- One campaign's line costs a few look-ups by index, however many flushes there are. Whoever may read the tables may read the view, also
-- after a restore without the account that made it.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW stock_watch AS
SELECT c.id AS campaign_id, c.kind, c.status, c.total, c.remaining, c.claimed,
  r.backlog, r.drift, r.at AS compared_at,
  (SELECT f.flushed_at FROM stock_flushes f WHERE f.campaign_id = c.id ORDER BY f.flushed_at DESC LIMIT 1) AS last_flush_at,
  TIMESTAMPDIFF(SECOND, (SELECT f.flushed_at FROM stock_flushes f WHERE f.campaign_id = c.id ORDER BY f.flushed_at DESC LIMIT 1),
    UTC_TIMESTAMP(3)) AS last_flush_age_seconds,
  (SELECT COALESCE(SUM(f.claims), 0) FROM stock_flushes f WHERE f.waiting = 1 AND f.campaign_id = c.id) AS waiting
FROM campaigns c
LEFT JOIN reconciliations r
  ON r.id = (SELECT x.id FROM reconciliations x WHERE x.campaign_id = c.id ORDER BY x.at DESC, x.id DESC LIMIT 1);
