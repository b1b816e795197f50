-- +goose Up
-- What became of claims afterwards, and what Redis must still be told of it. MySQL's ALTER TABLE knows no IF NOT EXISTS and does not
-- roll back, so it runs only where the columns are not there yet.
CREATE TABLE IF NOT EXISTS outbox (
  id          VARCHAR(64) NOT NULL COMMENT 'UUIDv7: sorts by time; the id of the event, too',
  campaign_id VARCHAR(64) NOT NULL,
  kind        VARCHAR(16) NOT NULL COMMENT 'release: gives quota back to Redis and tells the event; event: tells it only',
  claim_id    VARCHAR(64) NULL COMMENT 'the claim that it is about',
  payload     LONGBLOB    NOT NULL COMMENT 'the event as it goes into the claim stream, JSON',
  created_at  DATETIME(3) NOT NULL COMMENT 'UTC',
  applied_at  DATETIME(3) NULL COMMENT 'UTC, when Redis had it; NULL until then',
  PRIMARY KEY (id),
  KEY outbox_by_state (applied_at, id),
  KEY outbox_of_campaign (campaign_id, applied_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a thing that Redis must be told, written with what caused it; gone a day after Redis had it';

SET @add_released = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'campaigns'
  AND column_name = 'released_claims') > 0, 'DO 0',
  'ALTER TABLE campaigns
    ADD COLUMN released_claims BIGINT NOT NULL DEFAULT 0 COMMENT ''claims that were released or expired, ever''');
PREPARE add_released FROM @add_released;
EXECUTE add_released;
DEALLOCATE PREPARE add_released;

SET @add_resolved = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'claims'
  AND column_name = 'resolved_at') > 0, 'DO 0',
  'ALTER TABLE claims
    ADD COLUMN resolved_at DATETIME(3) NULL COMMENT ''UTC, when it was redeemed, released or expired; NULL until then'',
    ADD COLUMN release_reason VARCHAR(200) NOT NULL DEFAULT '''' COMMENT ''why it was released, in the words of who did''');
PREPARE add_resolved FROM @add_resolved;
EXECUTE add_resolved;
DEALLOCATE PREPARE add_resolved;
