-- +goose Up
-- The place of a claim is its seq in its shard, so an entry of finance names the shard as well. MySQL's ALTER TABLE knows no IF NOT EXISTS and
-- does not roll back, so it runs only where the column is not there yet.
SET @add_shard = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'account_entries'
  AND column_name = 'shard') > 0, 'DO 0',
  'ALTER TABLE account_entries
    ADD COLUMN shard INT NOT NULL DEFAULT 0 COMMENT ''of the campaign, from 1, in which seq counts; 0 in a campaign of one shard''');
PREPARE add_shard FROM @add_shard;
EXECUTE add_shard;
DEALLOCATE PREPARE add_shard;

-- Entries of before, where the claims are in the same database.
UPDATE account_entries e JOIN claims c ON c.id = e.claim_id SET e.shard = c.shard WHERE c.shard > 0;
