-- +goose Up
-- Ledgers read claims by seq, which rises with time unless Redis came back older.
ALTER TABLE lots ADD COLUMN unordered_upto BIGINT NOT NULL DEFAULT 0 COMMENT 'times of claims up to this seq may not rise with it, as Redis lost data and gave seqs again', ALGORITHM=INSTANT;
