-- +goose Up
-- The place of a claim is its seq in its shard, so an entry of finance names the shard as well.
ALTER TABLE account_entries ADD COLUMN shard INT NOT NULL DEFAULT 0; -- of the campaign, from 1, in which seq counts; 0 in a campaign of one shard
UPDATE account_entries SET shard = (SELECT c.shard FROM claims c WHERE c.id = claim_id) WHERE claim_id IN (SELECT id FROM claims WHERE shard > 0);
