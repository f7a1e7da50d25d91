"""Reads the pretended machine through nvidia-ml-py and prints it as JSON."""

import json
import os
import sys

from pynvml import *


def attempt(function, *arguments):
    try:
        return function(*arguments)
    except NVMLError as error:
        return f"error {error.value}"


def processes(function, handle):
    rows = attempt(function, handle)
    if isinstance(rows, str):
        return rows
    return [[row.pid, row.usedGpuMemory, row.gpuInstanceId] for row in rows]


def device(handle):
    v1 = attempt(nvmlDeviceGetMemoryInfo, handle)
    v2 = attempt(nvmlDeviceGetMemoryInfo, handle, nvmlMemory_v2)
    rates = attempt(nvmlDeviceGetUtilizationRates, handle)
    pci = attempt(nvmlDeviceGetPciInfo, handle)
    return {
        "uuid": attempt(nvmlDeviceGetUUID, handle),
        "name": attempt(nvmlDeviceGetName, handle),
        "index": attempt(nvmlDeviceGetIndex, handle),
        "v1": v1 if isinstance(v1, str) else [v1.total, v1.free, v1.used],
        "v2": v2 if isinstance(v2, str) else [v2.total, v2.reserved, v2.free, v2.used],
        "utilisation": rates if isinstance(rates, str) else rates.gpu,
        "temperature": attempt(nvmlDeviceGetTemperature, handle, NVML_TEMPERATURE_GPU),
        "power": attempt(nvmlDeviceGetPowerUsage, handle),
        "limit": attempt(nvmlDeviceGetPowerManagementLimit, handle),
        "pci": pci if isinstance(pci, str) else [pci.busId, pci.domain, pci.bus, pci.device],
        "compute": processes(nvmlDeviceGetComputeRunningProcesses_v3, handle),
        "compute_v2": processes(nvmlDeviceGetComputeRunningProcesses_v2, handle),
        "graphics": processes(nvmlDeviceGetGraphicsRunningProcesses_v3, handle),
        "mig": attempt(nvmlDeviceGetMigMode, handle),
    }


def event(handle):
    """What a set tells of something that happens after the library was initialised."""
    events = os.path.join(os.environ["FAKE_NVML_STATE"], "events")
    waiting = nvmlEventSetCreate()
    nvmlDeviceRegisterEvents(handle, nvmlEventTypeXidCriticalError, waiting)
    nothing = attempt(nvmlEventSetWait_v2, waiting, 1)
    with open(os.path.join(events, "draft"), "w") as file:
        json.dump({"device": nvmlDeviceGetIndex(handle), "kind": 8, "data": 79}, file)
    os.rename(os.path.join(events, "draft"), os.path.join(events, "1.json"))
    data = nvmlEventSetWait_v2(waiting, 60_000)
    nvmlEventSetFree(waiting)
    index = nvmlDeviceGetIndex(data.device)
    return [nothing, index, data.eventType, data.eventData, data.gpuInstanceId]


def main():
    init = attempt(nvmlInit)
    if init is not None:
        return {"init": init}
    answer = {"devices": [], "instances": []}
    for index in range(nvmlDeviceGetCount()):
        handle = attempt(nvmlDeviceGetHandleByIndex, index)
        if isinstance(handle, str):
            answer["devices"].append(handle)
            continue
        answer["devices"].append(device(handle))
        for slot in range(nvmlDeviceGetMaxMigDeviceCount(handle)):
            part = attempt(nvmlDeviceGetMigDeviceHandleByIndex, handle, slot)
            if not isinstance(part, str):
                answer["instances"].append(device(part))
    for uuid in sys.argv[1:]:
        answer.setdefault("by_uuid", []).append(
            nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID(uuid))
        )
    answer["near_cores"] = list(
        nvmlDeviceGetCpuAffinity(nvmlDeviceGetHandleByIndex(0), 2)
    )
    answer["event"] = event(nvmlDeviceGetHandleByIndex(1))
    nvmlShutdown()
    answer["after_shutdown"] = attempt(nvmlDeviceGetCount)
    return answer


print(json.dumps(main()))
