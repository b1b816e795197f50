-- +goose Up
-- What the syncer asks each second, without a look at every campaign: which were evicted, which are to end, which have several shards.
CREATE INDEX IF NOT EXISTS campaigns_of_residency ON campaigns (residency, id);
CREATE INDEX IF NOT EXISTS campaigns_to_end ON campaigns (status, closed_told_at);
CREATE INDEX IF NOT EXISTS campaigns_of_shards ON campaigns (shards);
