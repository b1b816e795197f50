-- +goose Up
-- What lets finance prove its books: the place of each claim in its campaign, and that no packet is paid twice. MySQL's ALTER TABLE knows
-- no IF NOT EXISTS and does not roll back, so it runs only where the column is not there yet.
SET @add_seq = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'account_entries'
  AND column_name = 'seq') > 0, 'DO 0',
  'ALTER TABLE account_entries
    ADD COLUMN seq BIGINT NULL COMMENT ''of the claim in its campaign; NULL: no claim, or credited by a program of before this column''');
PREPARE add_seq FROM @add_seq;
EXECUTE add_seq;
DEALLOCATE PREPARE add_seq;

-- Entries of before, where the claims are in the same database.
UPDATE account_entries e JOIN claims c ON c.id = e.claim_id SET e.seq = c.seq WHERE e.seq IS NULL;

-- A packet that was paid twice before this stays so, money moved: the later entries name it double:<claim_id>, which no packet is called.
UPDATE account_entries e JOIN (SELECT campaign_id, packet_id, MIN(claim_id) AS kept FROM account_entries WHERE packet_id IS NOT NULL
  GROUP BY campaign_id, packet_id HAVING COUNT(*) > 1) d ON d.campaign_id = e.campaign_id AND d.packet_id = e.packet_id
SET e.packet_id = CONCAT('double:', LEFT(e.claim_id, 57)) WHERE e.claim_id <> d.kept;

SET @add_packet = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'account_entries'
  AND index_name = 'account_entries_packet') > 0, 'DO 0', 'ALTER TABLE account_entries ADD UNIQUE KEY account_entries_packet (campaign_id, packet_id)');
PREPARE add_packet FROM @add_packet;
EXECUTE add_packet;
DEALLOCATE PREPARE add_packet;
