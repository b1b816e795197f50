-- +goose Up
-- A campaign may be spread over several shards. campaign_shards has a row a shard with the columns that campaigns has: a shard is loaded
-- into Redis, claimed from, evicted and rebuilt as a campaign of one shard is. Its total is what it has on loan from the campaign.
SET @add_shards = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'campaigns'
  AND column_name = 'shards') > 0, 'DO 0',
  'ALTER TABLE campaigns
    ADD COLUMN shards INT NOT NULL DEFAULT 1 COMMENT ''over how many shards the campaign is spread'',
    ADD COLUMN reserve BIGINT NOT NULL DEFAULT 0 COMMENT ''units that no shard has on loan; 0 in a campaign of one shard'',
    ADD COLUMN move_no BIGINT NOT NULL DEFAULT 0 COMMENT ''of a shard: the newest of its moves that was begun'',
    ADD COLUMN moved_no BIGINT NOT NULL DEFAULT 0 COMMENT ''of a shard: the newest of its moves that is done'',
    ADD COLUMN told_line INT NOT NULL DEFAULT 0 COMMENT ''of a campaign of several shards, which line of its stock was told: 1 low, 2 sold out''');
PREPARE add_shards FROM @add_shards;
EXECUTE add_shards;
DEALLOCATE PREPARE add_shards;

SET @add_flush_shard = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'stock_flushes'
  AND column_name = 'shard') > 0, 'DO 0',
  'ALTER TABLE stock_flushes
    ADD COLUMN shard INT NOT NULL DEFAULT 0 COMMENT ''shard of the campaign, from 1; 0 in a campaign of one shard''');
PREPARE add_flush_shard FROM @add_flush_shard;
EXECUTE add_flush_shard;
DEALLOCATE PREPARE add_flush_shard;

CREATE TABLE IF NOT EXISTS campaign_shards LIKE campaigns;

SET @add_place = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'campaign_shards'
  AND column_name = 'shard') > 0, 'DO 0',
  'ALTER TABLE campaign_shards
    COMMENT = ''one row a shard of the campaigns that are spread over several: what it has on loan, and its books'',
    ADD COLUMN campaign_id VARCHAR(64) NOT NULL,
    ADD COLUMN shard INT NOT NULL COMMENT ''from 1'',
    ADD COLUMN granted BIGINT NOT NULL DEFAULT 0 COMMENT ''units that it has on loan, as total'',
    ADD UNIQUE KEY campaign_shards_place (campaign_id, shard)');
PREPARE add_place FROM @add_place;
EXECUTE add_place;
DEALLOCATE PREPARE add_place;

CREATE TABLE IF NOT EXISTS stock_moves (
  campaign_id VARCHAR(64) NOT NULL,
  shard       INT         NOT NULL COMMENT 'from 1',
  no          BIGINT      NOT NULL COMMENT 'from 1, without gaps, per shard; one is open at a time',
  kind        VARCHAR(16) NOT NULL COMMENT 'grant: from the reserve to the shard; recall: from the shard to the reserve',
  want        BIGINT      NOT NULL COMMENT 'units that are to go',
  amount      BIGINT      NULL COMMENT 'units that went; a recall takes what is free. NULL while it is open',
  status      VARCHAR(16) NOT NULL COMMENT 'open or done',
  begun_at    DATETIME(3) NOT NULL COMMENT 'UTC',
  done_at     DATETIME(3) NULL COMMENT 'UTC',
  PRIMARY KEY (campaign_id, shard, no)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a move of units between the reserve of a campaign and one of its shards';
