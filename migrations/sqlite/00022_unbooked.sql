-- +goose Up
-- Which claims Redis had accepted and MySQL did not have yet, recorded each second: if Redis loses them, a repair can name them.
ALTER TABLE streams ADD COLUMN unbooked    MEDIUMTEXT; -- claims without rows when tip was seen: highest seq by campaign or shard; JSON
ALTER TABLE streams ADD COLUMN unexplained BIGINT NOT NULL DEFAULT 0; -- claims that Redis lost and that are of unknown campaigns
