-- +goose Up
-- Where the stock of each campaign is, and what proves that nothing of it was lost.
CREATE TABLE IF NOT EXISTS streams (
  `partition` INT         NOT NULL, -- which claim stream
  birth       VARCHAR(64) NOT NULL, -- mark that Redis holds too, as long as nothing of the stream was lost
  tip         VARCHAR(64) NOT NULL, -- highest entry id that was seen in the stream; it never goes back
  tip_at      DATETIME    NOT NULL, -- UTC
  PRIMARY KEY (`partition`)
);
ALTER TABLE campaigns ADD COLUMN residency VARCHAR(16)  NOT NULL DEFAULT 'none'; -- where the stock is: none (never in Redis), resident, evicted (Redis let go of it, all is here), lost (takes no claims)
ALTER TABLE campaigns ADD COLUMN residency_reason VARCHAR(500) NOT NULL DEFAULT ''; -- why it is lost
ALTER TABLE campaigns ADD COLUMN residency_at DATETIME  NULL; -- UTC, since when it is where it is
ALTER TABLE campaigns ADD COLUMN stream_birth VARCHAR(64)  NOT NULL DEFAULT ''; -- mark of the claim stream, in streams, when the campaign was loaded
ALTER TABLE campaigns ADD COLUMN seen_seq BIGINT       NOT NULL DEFAULT 0; -- highest seq of this epoch that an API process saw and Redis then did not hold
ALTER TABLE campaigns ADD COLUMN lost_claims BIGINT       NOT NULL DEFAULT 0; -- places in the order that a repair gave up: no row has them
UPDATE campaigns SET residency = 'resident' WHERE epoch > 0;
