@echo off
rem The same as train_multi_gpu.sh, from cmd.exe: by a native cxxrun.exe (build\release\bin or PATH) where there is one, else
rem inside WSL, which sets up and builds. Arguments: see :usage. DRY_RUN=1 prints the command and runs nothing.
rem
rem No delayed expansion and no call with arguments: "!", "^" and "&" in quoted arguments arrive as they were typed. The batch
rem parser splits %1 at "=", "," and ";", so what follows the positional words is cut from %* instead.
setlocal DisableDelayedExpansion EnableExtensions

if "%~1"=="--help" goto usage
if "%~1"=="/?" goto usage
set rest=%*
set count=0
set limit=3
:next_word
if %count%==%limit% goto words_done
if "%~1"=="" goto words_done
set "word=%~1"
if "%word:~0,1%"=="-" goto words_done
if %1=="%~1" goto cut_quoted
for /f "usebackq tokens=1,*" %%a in ('%rest%') do (
  set "piece=%%a"
  set "tail=%%b"
)
if not "%piece%"=="%~1" goto words_done
goto word_cut
:cut_quoted
set "tail=%rest:*"=%"
set tail=%tail:*"=%
:word_cut
set rest=%tail%
set /a count+=1 >nul
set "word%count%=%word%"
shift
if %count% gtr 1 goto next_word

rem The first word decides.
if /i "%word1%"=="all" goto next_word
set number=0
set /a "number=%word1%" >nul 2>nul
if "%number%"=="%word1%" if %number% gtr 0 goto next_word
for %%f in ("%word1%") do set "extension=%%~xf"
set limit=2
if exist "%word1%" goto next_word
for %%e in (.yaml .yml .json) do if /i "%extension%"=="%%e" goto next_word
echo train_multi_gpu.bat: '%word1%' is neither a number of processes (1 or more, or all) nor a configuration file>&2
call :usage >&2
exit /b 2

:words_done
set "nproc="
if %limit%==3 (
  set "nproc=%word1%"
  set "config=%word2%"
  set "name=%word3%"
  set "name_option=--experiment_name"
) else (
  set "config=%word1%"
  set "name=%word2%"
  set "name_option=--stage"
)

set "exe=%~dp0..\build\release\bin\cxxrun.exe"
if not exist "%exe%" for %%x in (cxxrun.exe) do set "exe=%%~$PATH:x"
if defined exe goto native

set "file=%~dp0train_multi_gpu.sh"
call :to_wsl
set command=wsl --exec bash "%file%"
if defined nproc set command=%command% %nproc%
set "file=%config%"
if defined config call :to_wsl
if defined config set command=%command% "%file%"
if defined name set command=%command% "%name%"
goto run

:native
if not defined config set "config=%~dp0..\configs\act_demo.yaml"
if not defined nproc set nproc=all
if /i "%nproc%"=="all" call :count_gpus
set command="%exe%" --nproc_per_node=%nproc% vla_worker --config "%config%"
if defined name set command=%command% %name_option% "%name%"

:run
if defined rest set command=%command% %rest%
if not "%DRY_RUN%"=="" if not "%DRY_RUN%"=="0" goto dry_run
if defined exe goto start
set "WSLENV=CUDA_VISIBLE_DEVICES:%WSLENV%"
for %%x in (wsl.exe) do if not "%%~$PATH:x"=="" goto start
echo train_multi_gpu.bat: neither cxxrun.exe nor WSL is here; install WSL with: wsl --install>&2
exit /b 1
:start
%command%
exit /b %errorlevel%
:dry_run
echo %command%
exit /b 0

rem Sets nproc to the number of GPUs that CUDA_VISIBLE_DEVICES leaves, or to 2 (ranks on the CPU) where there is none.
:count_gpus
set nproc=0
set "end="
if defined CXXRUN_FAKE_GPUS (
  set nproc=%CXXRUN_FAKE_GPUS%
) else (
  for /f %%g in ('nvidia-smi -L 2^>nul') do if "%%g"=="GPU" set /a nproc+=1 >nul
)
if %nproc%==0 goto cpu
if not defined CUDA_VISIBLE_DEVICES exit /b
set nproc=0
for %%g in (%CUDA_VISIBLE_DEVICES%) do (
  if "%%g"=="-1" set end=1
  if not defined end set /a nproc+=1 >nul
)
if not %nproc%==0 exit /b
:cpu
echo train_multi_gpu.bat: no GPU is visible here: 2 ranks on the CPU>&2
set nproc=2
exit /b

rem Turns %file% from C:\folder\name into /mnt/c/folder/name, and a relative name into one with slashes.
:to_wsl
set "file=%file:\=/%"
if not "%file:~1,1%"==":" exit /b
for %%d in (a b c d e f g h i j k l m n o p q r s t u v w x y z) do if /i "%file:~0,1%"=="%%d" set "drive=%%d"
set "file=/mnt/%drive%%file:~2%"
exit /b

:usage
echo usage:
echo   scripts\train_multi_gpu.bat [N or all] [CONFIG] [NAME] [WORKER OPTION...]
echo   scripts\train_multi_gpu.bat CONFIG [STAGE] [WORKER OPTION...]
echo Put arguments with spaces or special characters in double quotes. DRY_RUN=1 prints the command and runs nothing.
exit /b 0
