-- +goose Up
-- When the earliest hold of each campaign ends, so that the expirer reads what is due from an index and nothing else. MySQL's ALTER TABLE
-- knows no IF NOT EXISTS and does not roll back, so it runs only where the columns are not there yet.
SET @add_due = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'campaigns'
  AND column_name = 'next_due_ms') > 0, 'DO 0',
  'ALTER TABLE campaigns
    ADD COLUMN next_due_ms BIGINT NULL COMMENT ''when the earliest hold ends that may be open, milliseconds since 1970 by the clock of Redis; 0 or less: the expirer looks at once; NULL: no hold is open'',
    ADD COLUMN settled_seq BIGINT NOT NULL DEFAULT 0 COMMENT ''no claim with a seq up to this has an open hold'',
    ADD COLUMN last_claimed_ms BIGINT NOT NULL DEFAULT 0 COMMENT ''when the latest claim was made that has its row, milliseconds since 1970 by the clock of Redis; kept if claims expire'',
    ADD COLUMN holds_mixed BIGINT NOT NULL DEFAULT 0 COMMENT ''above 0: claims may have come that expire before claims with a lower seq'',
    ADD KEY campaigns_due (next_due_ms, id)');
PREPARE add_due FROM @add_due;
EXECUTE add_due;
DEALLOCATE PREPARE add_due;

SET @add_first_claimed = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'stock_flushes'
  AND column_name = 'first_claimed_ms') > 0, 'DO 0',
  'ALTER TABLE stock_flushes
    ADD COLUMN first_claimed_ms BIGINT NOT NULL DEFAULT 0 COMMENT ''when the earliest of these claims was made, milliseconds since 1970 by the clock of Redis'',
    ADD COLUMN last_claimed_ms BIGINT NOT NULL DEFAULT 0 COMMENT ''when the latest was''');
PREPARE add_first_claimed FROM @add_first_claimed;
EXECUTE add_first_claimed;
DEALLOCATE PREPARE add_first_claimed;
