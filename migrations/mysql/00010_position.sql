-- +goose Up
-- How many entries each claim stream ever had, which tells of a stream that lost its end although new entries hide that, and what was
-- lost last. MySQL's ALTER TABLE knows no IF NOT EXISTS and does not roll back, so it runs only where the columns are not there yet.
SET @add_added = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'streams'
  AND column_name = 'added') > 0, 'DO 0',
  'ALTER TABLE streams
    ADD COLUMN added BIGINT       NOT NULL DEFAULT 0 COMMENT ''entries that were ever in the stream when tip was seen'',
    ADD COLUMN loss  VARCHAR(500) NOT NULL DEFAULT '''' COMMENT ''what Redis lost of the stream last; empty when it never lost any''');
PREPARE add_added FROM @add_added;
EXECUTE add_added;
DEALLOCATE PREPARE add_added;
