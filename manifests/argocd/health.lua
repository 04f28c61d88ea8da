-- What Argo CD shows of an InferencePool of kvgate.dev, from the conditions Ready, Reconciling and Stalled alone.
local hs = {status = "Progressing", message = "kvgate has not looked at this generation yet"}
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return hs
end
local found = {}
for _, condition in ipairs(obj.status.conditions or {}) do
  found[condition.type] = condition
end
local ready = found["Ready"]
if ready == nil then
  return hs
end
hs.message = ready.reason .. ": " .. ready.message
if ready.status == "False" or (found["Stalled"] ~= nil and found["Stalled"].status == "True") then
  hs.status = "Degraded"
elseif ready.status == "True" then
  hs.status = "Healthy"
  if ready.reason == "Suspended" then
    hs.status = "Suspended"
  end
end
return hs
