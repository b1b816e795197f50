-- pause.lua pauses a lot without MySQL, and appends that to the claim stream.
-- Only a definition that includes the pause reopens the lot, see adjust.lua.
-- A loader starts again, so its next load applies the pause. The first write is
-- an XADD, which Redis refuses whole, see claim.lua.
--
-- KEYS[1] state   hash    definition and counters of the campaign
-- KEYS[2] stream  stream  the claim stream of the partition
--
-- ARGV[1] pause_id  the same for each lot of a campaign; later ones are greater
-- ARGV[2] event_id
-- ARGV[3] event  its JSON
-- ARGV[4] made_ms  when the campaign was made, where the lot does not say it;
--                  0: unknown
--
-- Reply {0} paused, or was by this pause
--   {1} the campaign is closed, untouched
--   {2, which} damaged: the key of that number
local state_key, stream_key = KEYS[1], KEYS[2]

local state_type = redis.call('TYPE', state_key)['ok']
local stream_type = redis.call('TYPE', stream_key)['ok']
if state_type ~= 'hash' and state_type ~= 'none' then return {2, 1} end
if stream_type ~= 'stream' and stream_type ~= 'none' then return {2, 2} end
local fields = redis.call('HMGET', state_key, 'status', 'pause', 'token', 'made_ms')
if fields[1] == 'closed' then return {1} end
if fields[2] == ARGV[1] then return {0} end

-- Writes. None after the first can fail.
local event = ARGV[3]
local made_ms = fields[4] or ARGV[4]
if made_ms ~= '0' then event = string.gsub(event, '}$', ',"made_ms":' .. made_ms .. '}') end
redis.call('XADD', stream_key, '*', '_watermill_message_uuid', ARGV[2], 'metadata', '', 'payload', event)
if fields[1] then redis.call('HSET', state_key, 'status', 'paused', 'pause', ARGV[1]) end
if fields[3] then redis.call('HSET', state_key, 'token', 'pause', 'token_ms', 0) end
return {0}
