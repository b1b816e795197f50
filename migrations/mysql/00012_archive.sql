-- +goose Up
-- Claims of closed campaigns may be moved away. MySQL's ALTER TABLE knows no IF NOT EXISTS and does not roll back, so it runs only where
-- the columns are not there yet.
SET @add_archived = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'campaigns'
  AND column_name = 'archived_claims') > 0, 'DO 0',
  'ALTER TABLE campaigns
    ADD COLUMN archived_claims BIGINT NOT NULL DEFAULT 0 COMMENT ''claims whose rows were moved away; synced_seq counts them still'',
    ADD COLUMN archived_units BIGINT NOT NULL DEFAULT 0 COMMENT ''units of those that were live; claimed counts them still'',
    ADD COLUMN archived_released BIGINT NOT NULL DEFAULT 0 COMMENT ''how many of them were released or expired; released_claims counts them still''');
PREPARE add_archived FROM @add_archived;
EXECUTE add_archived;
DEALLOCATE PREPARE add_archived;

CREATE TABLE IF NOT EXISTS claims_archive (
  id             VARCHAR(64)  NOT NULL COMMENT 'as in claims, like all columns but the last',
  campaign_id    VARCHAR(64)  NOT NULL,
  shard          INT          NOT NULL,
  seq            BIGINT       NOT NULL,
  user_id        VARCHAR(128) NOT NULL,
  quantity       BIGINT       NOT NULL,
  status         VARCHAR(16)  NOT NULL,
  key_digest     VARCHAR(64)  NOT NULL,
  epoch          BIGINT       NOT NULL,
  packet_id      VARCHAR(64)  NULL,
  amount         BIGINT       NULL,
  order_id       VARCHAR(128) NULL,
  claimed_at     DATETIME(3)  NOT NULL,
  synced_at      DATETIME(3)  NOT NULL,
  resolved_at    DATETIME(3)  NULL,
  release_reason VARCHAR(200) NOT NULL,
  archived_at    DATETIME(3)  NOT NULL COMMENT 'UTC',
  PRIMARY KEY (campaign_id, shard, seq)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='claims of closed campaigns that dibs archive moved here; nothing reads it';
