-- +goose Up
-- Whether people gave a parked claim up. MySQL's ALTER TABLE knows no IF NOT EXISTS and does not roll back, so it runs only where the
-- column is not there yet.
SET @add_discarded = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'parked_events'
  AND column_name = 'discarded_at') > 0, 'DO 0',
  'ALTER TABLE parked_events
    ADD COLUMN discarded_at DATETIME(3)  NULL COMMENT ''UTC, when somebody gave it up; NULL: what it claims still counts as claimed''');
PREPARE add_discarded FROM @add_discarded;
EXECUTE add_discarded;
DEALLOCATE PREPARE add_discarded;
