-- +goose Up
-- Which claims Redis had accepted and MySQL did not have yet, recorded each second: if Redis loses them, a repair can name them.
SET @add_unbooked = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'streams'
  AND column_name = 'unbooked') > 0, 'DO 0',
  'ALTER TABLE streams
    ADD COLUMN unbooked    MEDIUMTEXT                COMMENT ''claims without rows when tip was seen: highest seq by campaign or shard; JSON'',
    ADD COLUMN unexplained BIGINT NOT NULL DEFAULT 0 COMMENT ''claims that Redis lost and that are of unknown campaigns''');
PREPARE add_unbooked FROM @add_unbooked;
EXECUTE add_unbooked;
DEALLOCATE PREPARE add_unbooked;
