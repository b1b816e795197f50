-- +goose Up
-- When the earliest hold of each campaign ends, so that the expirer reads what is due from an index and nothing else.
ALTER TABLE campaigns ADD COLUMN next_due_ms BIGINT NULL; -- when the earliest hold ends that may be open, milliseconds since 1970 by the clock of Redis; 0 or less: the expirer looks at once; NULL: no hold is open
ALTER TABLE campaigns ADD COLUMN settled_seq BIGINT NOT NULL DEFAULT 0; -- no claim with a seq up to this has an open hold
ALTER TABLE campaigns ADD COLUMN last_claimed_ms BIGINT NOT NULL DEFAULT 0; -- when the latest claim was made that has its row, milliseconds since 1970 by the clock of Redis; kept if claims expire
ALTER TABLE campaigns ADD COLUMN holds_mixed BIGINT NOT NULL DEFAULT 0; -- above 0: claims may have come that expire before claims with a lower seq
CREATE INDEX IF NOT EXISTS campaigns_due ON campaigns (next_due_ms, id);
ALTER TABLE stock_flushes ADD COLUMN first_claimed_ms BIGINT NOT NULL DEFAULT 0; -- when the earliest of these claims was made, milliseconds since 1970 by the clock of Redis
ALTER TABLE stock_flushes ADD COLUMN last_claimed_ms BIGINT NOT NULL DEFAULT 0; -- when the latest was
