-- +goose Up
-- A campaign may be spread over several shards. campaign_shards has a row a shard with the columns that campaigns has: a shard is loaded
-- into Redis, claimed from, evicted and rebuilt as a campaign of one shard is. Its total is what it has on loan from the campaign.
ALTER TABLE campaigns ADD COLUMN shards INT NOT NULL DEFAULT 1; -- over how many shards the campaign is spread
ALTER TABLE campaigns ADD COLUMN reserve BIGINT NOT NULL DEFAULT 0; -- units that no shard has on loan; 0 in a campaign of one shard
ALTER TABLE campaigns ADD COLUMN move_no BIGINT NOT NULL DEFAULT 0; -- of a shard: the newest of its moves that was begun
ALTER TABLE campaigns ADD COLUMN moved_no BIGINT NOT NULL DEFAULT 0; -- of a shard: the newest of its moves that is done
ALTER TABLE campaigns ADD COLUMN told_line INT NOT NULL DEFAULT 0; -- of a campaign of several shards, which line of its stock was told: 1 low, 2 sold out
ALTER TABLE stock_flushes ADD COLUMN shard INT NOT NULL DEFAULT 0; -- shard of the campaign, from 1; 0 in a campaign of one shard

CREATE TABLE IF NOT EXISTS campaign_shards (
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
  residency VARCHAR(16)  NOT NULL DEFAULT 'none', -- where the stock is: none (never in Redis), resident, evicted (Redis let go of it, all is here), lost (takes no claims)
  residency_reason VARCHAR(500) NOT NULL DEFAULT '', -- why it is lost
  residency_at DATETIME  NULL, -- UTC, since when it is where it is
  stream_birth VARCHAR(64)  NOT NULL DEFAULT '', -- mark of the claim stream, in streams, when the campaign was loaded
  seen_seq BIGINT       NOT NULL DEFAULT 0, -- highest seq of this epoch that an API process saw and Redis then did not hold
  lost_claims BIGINT       NOT NULL DEFAULT 0, -- places in the order that a repair gave up: no row has them
  released_claims BIGINT NOT NULL DEFAULT 0, -- claims that were released or expired, ever
  closed_told_at DATETIME NULL, -- UTC, when all was settled and campaign.closed written; NULL until then
  next_due_ms BIGINT NULL, -- when the earliest hold ends that may be open, milliseconds since 1970 by the clock of Redis; 0 or less: the expirer looks at once; NULL: no hold is open
  settled_seq BIGINT NOT NULL DEFAULT 0, -- no claim with a seq up to this has an open hold
  last_claimed_ms BIGINT NOT NULL DEFAULT 0, -- when the latest claim was made that has its row, milliseconds since 1970 by the clock of Redis; kept if claims expire
  holds_mixed BIGINT NOT NULL DEFAULT 0, -- above 0: claims may have come that expire before claims with a lower seq
  changes BIGINT NOT NULL DEFAULT 1, -- definitions that there were, counted from 1
  archived_claims BIGINT NOT NULL DEFAULT 0, -- claims whose rows were moved away; synced_seq counts them still
  archived_units BIGINT NOT NULL DEFAULT 0, -- units of those that were live; claimed counts them still
  archived_released BIGINT NOT NULL DEFAULT 0, -- how many of them were released or expired; released_claims counts them still
  shards INT NOT NULL DEFAULT 1, -- over how many shards the campaign is spread
  reserve BIGINT NOT NULL DEFAULT 0, -- units that no shard has on loan; 0 in a campaign of one shard
  move_no BIGINT NOT NULL DEFAULT 0, -- of a shard: the newest of its moves that was begun
  moved_no BIGINT NOT NULL DEFAULT 0, -- of a shard: the newest of its moves that is done
  told_line INT NOT NULL DEFAULT 0, -- of a campaign of several shards, which line of its stock was told: 1 low, 2 sold out
  campaign_id VARCHAR(64) NOT NULL,
  shard INT NOT NULL, -- from 1
  granted BIGINT NOT NULL DEFAULT 0, -- units that it has on loan, as total
  PRIMARY KEY (id),
  CONSTRAINT campaign_shards_remaining_not_negative CHECK (remaining >= 0),
  CONSTRAINT campaign_shards_claimed_not_negative CHECK (claimed >= 0)
);
CREATE INDEX IF NOT EXISTS campaign_shards_closing ON campaign_shards (status, closed_told_at, id);
CREATE INDEX IF NOT EXISTS campaign_shards_due ON campaign_shards (next_due_ms, id);
CREATE UNIQUE INDEX IF NOT EXISTS campaign_shards_place ON campaign_shards (campaign_id, shard);

CREATE TABLE IF NOT EXISTS stock_moves (
  campaign_id VARCHAR(64) NOT NULL,
  shard       INT         NOT NULL, -- from 1
  no          BIGINT      NOT NULL, -- from 1, without gaps, per shard; one is open at a time
  kind        VARCHAR(16) NOT NULL, -- grant: from the reserve to the shard; recall: from the shard to the reserve
  want        BIGINT      NOT NULL, -- units that are to go
  amount      BIGINT      NULL, -- units that went; a recall takes what is free. NULL while it is open
  status      VARCHAR(16) NOT NULL, -- open or done
  begun_at    DATETIME    NOT NULL, -- UTC
  done_at     DATETIME    NULL, -- UTC
  PRIMARY KEY (campaign_id, shard, no)
);
