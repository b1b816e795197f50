-- For wrk: POSTs claims, each of a new user, with its own
-- idempotency key if requested. Arguments: prefix of the user
-- ids; "keyed" or "unkeyed"; optionally a file with lines "user
-- token", whose users claim in rotation instead. Prints a line
-- of JSON at the end.
local thread_count = 0
function setup(thread)
  thread:set('thread_id', thread_count)
  thread_count = thread_count + 1
end

local user_head, head, count = '', '', 0
function init(args)
  user_head = args[1] .. thread_id .. '-'
  head = 'POST ' .. wrk.path .. ' HTTP/1.1\r\nHost: ' .. wrk.host .. ':' .. wrk.port ..
    '\r\nContent-Type: application/json\r\n'
  if args[2] == 'keyed' then head = head .. 'Idempotency-Key: ' end
  keyed = args[2] == 'keyed'
  if args[3] then
    owners = {}
    for line in io.lines(args[3]) do
      local user, token = line:match('^(%S+) (%S+)$')
      local body = '{"user_id":"' .. user .. '"}'
      owners[#owners + 1] = head .. 'Authorization: Bearer ' .. token .. '\r\nContent-Length: ' .. #body .. '\r\n\r\n' .. body
    end
  end
end

function request()
  count = count + 1
  if owners then return owners[count % #owners + 1] end
  local user = user_head .. count
  local body = '{"user_id":"' .. user .. '"}'
  if keyed then return head .. user .. '\r\nContent-Length: ' .. #body .. '\r\n\r\n' .. body end
  return head .. 'Content-Length: ' .. #body .. '\r\n\r\n' .. body
end

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"took_us":%d,"refused":%d,"broken":%d,"p50_us":%d,"p99_us":%d}\n', summary.requests,
    summary.duration, e.status, e.connect + e.read + e.write + e.timeout, latency:percentile(50), latency:percentile(99)))
end
