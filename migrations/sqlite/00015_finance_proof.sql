-- +goose Up
-- What lets finance prove its books: the place of each claim in its campaign, and that no packet is paid twice.
ALTER TABLE account_entries ADD COLUMN seq BIGINT NULL; -- of the claim in its campaign; NULL: no claim, or credited by a program of before this column
UPDATE account_entries SET seq = (SELECT c.seq FROM claims c WHERE c.id = claim_id) WHERE seq IS NULL;
-- A packet that was paid twice before this stays so, money moved: the later entries name it double:<claim_id>, which no packet is called.
UPDATE account_entries SET packet_id = 'double:' || claim_id WHERE packet_id IS NOT NULL AND claim_id <> (SELECT MIN(d.claim_id)
  FROM account_entries d WHERE d.campaign_id = account_entries.campaign_id AND d.packet_id = account_entries.packet_id);
CREATE UNIQUE INDEX IF NOT EXISTS account_entries_packet ON account_entries (campaign_id, packet_id);
