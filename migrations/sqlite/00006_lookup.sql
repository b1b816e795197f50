-- +goose Up
-- A user's claims, newest first, straight from the index: in its order, and those of one campaign without a look at the rows.
DROP INDEX IF EXISTS claims_of_user;
CREATE INDEX IF NOT EXISTS claims_of_user ON claims (user_id, claimed_at, id, campaign_id);
