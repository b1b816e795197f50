-- +goose Up
-- How many definitions a campaign had. version numbers them by time, and what is told of versions goes by it; people read this count.
-- MySQL's ALTER TABLE knows no IF NOT EXISTS and does not roll back, so it runs only where the column is not there yet.
SET @add_changes = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'campaigns'
  AND column_name = 'changes') > 0, 'DO 0',
  'ALTER TABLE campaigns ADD COLUMN changes BIGINT NOT NULL DEFAULT 1 COMMENT ''definitions that there were, counted from 1''');
PREPARE add_changes FROM @add_changes;
EXECUTE add_changes;
DEALLOCATE PREPARE add_changes;
