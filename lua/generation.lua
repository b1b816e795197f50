-- generation.lua gives a partition its next generation, after Redis lost data: each lot that was loaded before is away from then on.
--
-- KEYS[1] signals hash    of the partition; its field generation is missing before the first loss
-- KEYS[2] stream  stream  the claim stream of the partition
--
-- ARGV[1] generation
-- ARGV[2] event_id
-- ARGV[3] event  its JSON
--
-- Reply {0, generation} it is in force · {1, generation} this one or a higher one was before, untouched
local signals_key, stream_key = KEYS[1], KEYS[2]

local held = tonumber(redis.call('HGET', signals_key, 'generation') or '0')
if held >= tonumber(ARGV[1]) then return {1, held} end

-- Writes. The first may be refused, and then nothing was written. After it nothing can fail.
redis.call('XADD', stream_key, '*', '_watermill_message_uuid', ARGV[2], 'metadata', '', 'payload', ARGV[3])
redis.call('HSET', signals_key, 'generation', ARGV[1])
return {0, tonumber(ARGV[1])}
