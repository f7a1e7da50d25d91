"""The interfaces of the original ``gpu_task_scheduler``, on packhorse.

    from packhorse.gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
    from packhorse.gpu_task_scheduler.gpu_task import GPUTask
    from packhorse.gpu_task_scheduler.config_manager import ConfigManager

Only the import paths are new; under ``python -m packhorse SCRIPT`` not even these.
"""
