-- +goose Up
-- Where the stock of each campaign is, and what proves that nothing of it was lost. MySQL's ALTER TABLE knows no IF NOT EXISTS and does not
-- roll back, so it runs only where the columns are not there yet.
CREATE TABLE IF NOT EXISTS streams (
  `partition` INT         NOT NULL COMMENT 'which claim stream',
  birth       VARCHAR(64) NOT NULL COMMENT 'mark that Redis holds too, as long as nothing of the stream was lost',
  tip         VARCHAR(64) NOT NULL COMMENT 'highest entry id that was seen in the stream; it never goes back',
  tip_at      DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (`partition`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 /*!80017 COLLATE=utf8mb4_0900_bin */ /*M!100203 COLLATE=utf8mb4_nopad_bin */
  COMMENT='one row a claim stream: how to tell that Redis lost some of it';

SET @add_residency = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'campaigns'
  AND column_name = 'residency') > 0, 'DO 0',
  'ALTER TABLE campaigns
    ADD COLUMN residency VARCHAR(16)  NOT NULL DEFAULT ''none'' COMMENT ''where the stock is: none (never in Redis), resident, evicted (Redis let go of it, all is here), lost (takes no claims)'',
    ADD COLUMN residency_reason VARCHAR(500) NOT NULL DEFAULT '''' COMMENT ''why it is lost'',
    ADD COLUMN residency_at DATETIME(3)  NULL COMMENT ''UTC, since when it is where it is'',
    ADD COLUMN stream_birth VARCHAR(64)  NOT NULL DEFAULT '''' COMMENT ''mark of the claim stream, in streams, when the campaign was loaded'',
    ADD COLUMN seen_seq BIGINT       NOT NULL DEFAULT 0 COMMENT ''highest seq of this epoch that an API process saw and Redis then did not hold'',
    ADD COLUMN lost_claims BIGINT       NOT NULL DEFAULT 0 COMMENT ''places in the order that a repair gave up: no row has them''');
PREPARE add_residency FROM @add_residency;
EXECUTE add_residency;
DEALLOCATE PREPARE add_residency;
UPDATE campaigns SET residency = 'resident' WHERE epoch > 0 AND residency = 'none';
