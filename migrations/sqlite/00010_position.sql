-- +goose Up
-- How many entries each claim stream ever had, which tells of a stream that lost its end although new entries hide that.
ALTER TABLE streams ADD COLUMN added BIGINT       NOT NULL DEFAULT 0; -- entries that were ever in the stream when tip was seen
ALTER TABLE streams ADD COLUMN loss  VARCHAR(500) NOT NULL DEFAULT ''; -- what Redis lost of the stream last; empty when it never lost any
