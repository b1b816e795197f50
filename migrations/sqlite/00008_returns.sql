-- +goose Up
-- Whether it was told that a campaign is closed, and what nobody took returned.
ALTER TABLE campaigns ADD COLUMN closed_told_at DATETIME NULL; -- UTC, when all was settled and campaign.closed written; NULL until then
CREATE INDEX IF NOT EXISTS campaigns_closing ON campaigns (status, closed_told_at, id);
