-- generation.lua gives a partition its next generation after a loss.
-- Then all its lots are away.
--
-- KEYS[1] signals hash    of the partition; no generation before the first loss
-- KEYS[2] stream  stream  the claim stream of the partition
--
-- ARGV[1] generation
-- ARGV[2] event_id
-- ARGV[3] event  its JSON
--
-- Reply {0, generation} set
--   {1, generation} this one or a higher one is set, untouched
local signals_key, stream_key = KEYS[1], KEYS[2]

local held = tonumber(redis.call('HGET', signals_key, 'generation') or '0')
if held >= tonumber(ARGV[1]) then return {1, held} end

-- Writes. None after the first can fail.
redis.call('XADD', stream_key, '*', '_watermill_message_uuid', ARGV[2], 'metadata', '', 'payload', ARGV[3])
redis.call('HSET', signals_key, 'generation', ARGV[1])
return {0, tonumber(ARGV[1])}
