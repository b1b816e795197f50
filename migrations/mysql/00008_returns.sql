-- +goose Up
-- Whether it was told that a campaign is closed, and what nobody took returned. MySQL's ALTER TABLE knows no IF NOT EXISTS and does
-- not roll back, so it runs only where the column is not there yet.
SET @add_closed_told = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'campaigns'
  AND column_name = 'closed_told_at') > 0, 'DO 0',
  'ALTER TABLE campaigns
    ADD COLUMN closed_told_at DATETIME(3) NULL COMMENT ''UTC, when all was settled and campaign.closed written; NULL until then'',
    ADD KEY campaigns_closing (status, closed_told_at, id)');
PREPARE add_closed_told FROM @add_closed_told;
EXECUTE add_closed_told;
DEALLOCATE PREPARE add_closed_told;
